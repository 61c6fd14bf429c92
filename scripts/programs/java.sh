# javac, jar, java.
needs="javac jar java"
prepare() {
    mkdir -p src/p
    for i in {1..20}; do echo "package p; public class C$i { public static int n() { return $i; } }" >"src/p/C$i.java"; done
    echo 'package p; public class Main { public static void main(String[] a) throws Exception {
        var f = java.nio.channels.FileChannel.open(java.nio.file.Path.of("mapped"), java.nio.file.StandardOpenOption.values()[0],
            java.nio.file.StandardOpenOption.WRITE, java.nio.file.StandardOpenOption.CREATE);
        f.map(java.nio.channels.FileChannel.MapMode.READ_WRITE, 0, 10000).putInt(5000, C7.n());
        java.nio.file.Files.copy(java.nio.file.Path.of("mapped"), java.nio.file.Path.of("copied"));
        System.out.println(C1.n() + C20.n()); } }' >src/p/Main.java
}
work() {
    javac -d classes src/p/*.java
    jar --create --date=2020-01-01T00:00:00Z --file app.jar --main-class p.Main -C classes .
    java -XX:-UsePerfData -cp classes p.Main && rm copied && java -XX:-UsePerfData -jar app.jar
}
check() { rm copied && java -jar app.jar; }
