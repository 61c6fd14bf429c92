# npm install of date-fns from a full cache: 6,000 files.
needs=npm
rows="npm-install"
target_npm_install=2.7
named_by_chance=1
quiet=(--silent --no-audit --no-fund --no-update-notifier)
prepare() {
    mkdir app && cd app && echo '{"name":"app","version":"1.0.0","private":true}' >package.json
    npm install "${quiet[@]}" --cache "$T/cache" date-fns@2.30.0
    rm -rf node_modules package-lock.json
}
work_npm_install() { cd app && npm install "${quiet[@]}" --offline --cache "$T/cache" date-fns@2.30.0; }
