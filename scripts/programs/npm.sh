# Packages made on the spot: packed, installed from the archive, run, removed.
needs=npm
named='^cache/_logs/|^cache/_cacache/'
prepare() {
    mkdir -p pkg/lib app home
    for i in {1..150}; do echo "module.exports = $i" >"pkg/lib/m$i.js"; done
    echo '{"name":"tiny-package","version":"1.2.3","bin":{"tiny":"cli.js"}}' >pkg/package.json
    printf '#!/usr/bin/env node\nconsole.log(require("./lib/m7.js"))\n' >pkg/cli.js
    echo '{"name":"app","version":"1.0.0","private":true,"scripts":{"go":"tiny"}}' >app/package.json
}
work() {
    cd pkg && npm pack --silent --cache "$T/cache" && cd ../app
    npm install --silent --offline --no-audit --no-fund --no-update-notifier --cache "$T/cache" ../pkg/tiny-package-1.2.3.tgz
    npm run --silent --no-update-notifier --cache "$T/cache" go && node_modules/.bin/tiny
    mkdir ../second && cp package.json ../second && cd ../second
    npm install --silent --offline --no-audit --no-fund --no-update-notifier --cache "$T/cache" ../pkg
    npm uninstall --silent --no-audit --no-fund --no-update-notifier --cache "$T/cache" tiny-package
}
check() { [ "$(app/node_modules/.bin/tiny)" = 7 ]; }
