# A virtual environment, and a wheel made on the spot installed into it, upgraded and removed.
needs=python3
prepare() {
    "$PYTHON" -c 'import venv, ensurepip'
    for version in 1.0 2.0; do
        "$PYTHON" - "$version" <<'end'
import sys, zipfile
name, version = 'tiny', sys.argv[1]
info = f'{name}-{version}.dist-info/'
with zipfile.ZipFile(f'{name}-{version}-py3-none-any.whl', 'w') as wheel:
    for n in range(60): wheel.writestr(f'{name}/m{n}.py', f'value = {n}\n')
    wheel.writestr(f'{name}/__init__.py', f'version = "{version}"\ndef main(): print(version)\n')
    wheel.writestr(info + 'METADATA', f'Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    wheel.writestr(info + 'entry_points.txt', f'[console_scripts]\n{name} = {name}:main\n')
    wheel.writestr(info + 'RECORD', '')
end
    done
}
work() {
    "$PYTHON" -m venv env
    env/bin/python -m pip install -q --disable-pip-version-check --no-index ./tiny-1.0-py3-none-any.whl
    env/bin/tiny
    env/bin/python -m pip install -q --disable-pip-version-check --no-index ./tiny-2.0-py3-none-any.whl
    env/bin/tiny && env/bin/python -m pip list --disable-pip-version-check
}
check() { [ "$(env/bin/tiny)" = 2.0 ] && env/bin/python -m pip check --disable-pip-version-check; }
