// What Python runs at its start where a channel for reports is open. Private to envs/tasks/.
//
// It reads its key from descriptor 98, which is a pipe, and writes lines to 97: "[[tandem-report NUMBER KIND JSON
// MAC]]".
#pragma once

namespace tandem::envs {

inline constexpr const char* kReportProgram = R"py(
def _start():
    import os, sys
    try:
        key = os.read(98, 33)
        os.close(98)
    except OSError:
        return
    if len(key) != 33:
        return
    os.set_inheritable(97, False)
    import atexit, importlib.util, json
    from hashlib import blake2b

    number, owner = key[:2].decode(), os.getpid()
    digest = blake2b(digest_size=16, key=key[:32])
    del key
    state = {"ran": False}
    ends = {}
    known = {}
    PASSED, SKIPPED, FAILED = 1, 2, 3

    def say(kind, content, write=os.write, dumps=json.dumps):
        text = f"{number} {kind} {dumps(content)}"
        signed = digest.copy()
        signed.update(text.encode())
        line = f"\n[[tandem-report {text} {signed.hexdigest()}]]\n".encode()
        try:
            while line:
                line = line[write(97, line):]
        except OSError:
            pass

    def put(name, end):
        ends[name] = max(ends.get(name, 0), end)

    def has_begun():
        if not state["ran"]:
            state["ran"] = True
            say("run", 0)

    # Functions of modules, with their code: who tests must be who he was.
    def functions(modules):
        found = {}
        for module in modules:
            for name, value in list(vars(module).items()):
                if getattr(value, "__module__", None) != module.__name__:
                    continue
                members = list(vars(value).items()) if isinstance(value, type) else [("", value)]
                for member, function in members:
                    code = getattr(getattr(function, "__func__", function), "__code__", None)
                    if code is not None:
                        found[module, name, member] = (function, code)
        return found

    def changed():
        now = functions({module for module, _, _ in known})
        for place, (function, code) in known.items():
            there = now.get(place, (None, None))
            if there[0] is not function or there[1] is not code:
                return ".".join([place[0].__name__, *filter(None, place[1:])])
        return ""

    def finish():
        if os.getpid() != owner:
            return
        if state["ran"]:
            say("results", {"tests": [[name, end or FAILED] for name, end in ends.items()], "changed": changed()})
        else:
            say("end", 0)

    def watch_unittest():
        import unittest.case, unittest.loader, unittest.result, unittest.runner, unittest.suite
        TestResult = unittest.result.TestResult
        active = []  # the result and the test that runs
        inner = []   # results of tests within tests

        def note(result, test, end):
            if any(result is other for other in inner):
                return
            has_begun()
            put(str(test), end)
            said = getattr(test, "shortDescription", lambda: None)()
            if said:
                put(said, end)

        def wrap(name, end):
            old = getattr(TestResult, name)

            def new(self, test, *rest):
                note(self, test, end)
                return old(self, test, *rest)
            setattr(TestResult, name, new)

        start, stop, sub = TestResult.startTest, TestResult.stopTest, TestResult.addSubTest

        def start_test(self, test):
            if active and active[0] is not self:
                inner.append(self)
            else:
                active[:] = [self, test]
                note(self, test, 0)
            return start(self, test)

        def stop_test(self, test):
            if active and active[0] is self:
                active.clear()
            return stop(self, test)

        def add_sub_test(self, test, subtest, error):
            if error is not None:
                note(self, test, FAILED)
            return sub(self, test, subtest, error)

        TestResult.startTest, TestResult.stopTest, TestResult.addSubTest = start_test, stop_test, add_sub_test
        for name, end in (("addSuccess", PASSED), ("addExpectedFailure", PASSED), ("addSkip", SKIPPED),
                          ("addFailure", FAILED), ("addError", FAILED), ("addUnexpectedSuccess", FAILED)):
            wrap(name, end)
        known.update(functions([unittest.case, unittest.loader, unittest.result, unittest.runner, unittest.suite]))

    class Reporter:
        def __init__(self, config):
            self.name = getattr(config, "cwd_relative_nodeid", lambda name: name)

        def pytest_collectreport(self, report):
            if report.failed:
                put(self.name(report.nodeid), FAILED)
            elif report.skipped:
                put(self.name(report.nodeid), SKIPPED)

        def pytest_runtest_logreport(self, report):
            name = self.name(report.nodeid)
            if hasattr(report, "wasxfail"):
                put(name, PASSED if report.skipped else FAILED)
            elif report.failed:
                put(name, FAILED)
            elif report.skipped:
                put(name, SKIPPED)
            elif report.when == "call":
                put(name, PASSED)
            else:
                put(name, 0)

    def watch_pytest(config_module):
        get_config = getattr(config_module, "get_config", None)
        if get_config is None:
            return

        def new(*args, **named):
            config = get_config(*args, **named)
            if not state.get("config"):
                state["config"] = True
                import _pytest.outcomes, _pytest.reports, _pytest.runner
                known.update(functions([_pytest.outcomes, _pytest.reports, _pytest.runner]))
                has_begun()
                config.pluginmanager.register(Reporter(config), "tandem-report")
            return config
        config_module.get_config = new

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name != "_pytest.config":
                return None
            sys.meta_path.remove(Finder)
            spec = importlib.util.find_spec(name)
            if spec is None or spec.loader is None:
                return None
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                watch_pytest(module)
            spec.loader.exec_module = exec_module
            return spec

    def calls_runner(script):
        try:
            with open(script, encoding="utf-8", errors="replace") as file:
                text = file.read(1 << 20)
        except OSError:
            return False
        return any(name in text for name in ("unittest.main(", "pytest.main(", "TextTestRunner("))

    def runs_tests(words):
        words = words[1:]
        while words:
            word = words.pop(0)
            if word.startswith("-") and not word.startswith("--") and word.endswith("m"):
                return bool(words) and words[0] in ("unittest", "pytest", "py.test")
            if word in ("-W", "-X"):
                words = words[1:]
            elif word == "-" or not word.startswith("-"):
                return os.path.basename(word) in ("pytest", "py.test", "pytest-3") or calls_runner(word)
            elif word.endswith("c"):
                return False
        return False

    say("began", 1 if runs_tests(list(getattr(sys, "orig_argv", []))) else 0)
    atexit.register(finish)
    sys.meta_path.insert(0, Finder)
    watch_unittest()


_start()
del _start
)py";

// Before the machine's own on the path: Python that is told to look at no variables (-I, -E) does not find the channel
// by itself.
inline constexpr const char* kIsolatedPython = R"sh(#!/bin/sh
rest=$PATH: path=
while [ -n "$rest" ]; do
  folder=${rest%%:*} rest=${rest#*:}
  [ "$folder" = /tmp/tandem-report/bin ] || path=$path$folder:
done
PATH=${path%:}
export PATH
python=$(command -v python3) || exit 127
case "$1" in
  -I|-E|-IB|-BI|-EB|-BE|-Es|-sE) ;;
  *) exec "$python" "$@" ;;
esac
flags=$1
case "$2" in
  -m) run='runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)'; first=m; skip=2 ;;
  -*|"") exec "$python" "$@" ;;
  *) run='runpy.run_path(sys.argv[0], run_name="__main__")'; first=; skip=1 ;;
esac
shift $skip
exec "$python" "$flags" -c "import runpy, sys
sys.orig_argv = ['python3', ${first:+'-m',} *sys.argv[1:]]
exec(open('/tmp/tandem-report/sitecustomize.py').read())
sys.argv = sys.argv[1:]
$run" "$@"
)sh";

}  // namespace tandem::envs
