# How long it takes until the prompt is back when a transaction is aborted that has made, changed, or removed 10,000 files.
needs=python3
rows="abort-new abort-changed abort-removed"
target_abort_new="50 ms"
target_abort_changed="50 ms"
target_abort_removed="50 ms"
prepare() { mkdir files && python3 -c 'for n in range(10000): open(f"files/{n}", "w").write("x" * 100)'; }
work_abort_new() { python3 -c 'for n in range(10000): open(f"{n}", "w").write("x" * 100)'; }
work_abort_changed() { python3 -c 'for n in range(10000): open(f"files/{n}", "r+").write("y" * 50)'; }
work_abort_removed() { rm -r files; }
