# go build with a cache that prepare has filled with the standard library.
needs=go
named='^home/cache/../[0-9a-f]+-a$' dated='^home/cache/..$|-a$'
prepare() {
    mkdir m && cd m && settings
    go mod init example.invalid/m
    printf 'package main\n\nimport "os"\n\nfunc main() { os.Stdout.WriteString("hello\\n") }\n' >main.go
    go build -o /dev/null .
}
settings() { export GOPROXY=off GOFLAGS=-mod=mod GOTOOLCHAIN=local GOTELEMETRY=off GOPATH=$T/home/go GOCACHE=$T/home/cache GOENV=off; }
work() { cd m && settings && echo 'func unused() {}' >>main.go && go vet ./... && go build -o hello . && ./hello && go list -f '{{.Name}}' .; }
check() { [ "$(m/hello)" = hello ]; }
