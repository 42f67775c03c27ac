// The part of a grader's report (report_program.h) that knows pytest, and begins.
#pragma once

namespace tandem::envs {

inline constexpr const char* kReportOfPytest = R"py(
    # Hooks of pytest by which a test is run and reported, and who has a say in each.
    watched_hooks = ("pytest_pyfunc_call", "pytest_runtest_protocol", "pytest_runtest_setup", "pytest_runtest_call",
                     "pytest_runtest_teardown", "pytest_runtest_makereport", "pytest_runtest_logreport",
                     "pytest_collectreport", "pytest_pycollect_makemodule", "pytest_pycollect_makeitem",
                     "pytest_collection_modifyitems", "pytest_report_teststatus")

    def hook_members(manager):
        found = {}
        for name in watched_hooks:
            caller = getattr(manager.hook, name, None)
            for member in caller.get_hookimpls() if caller else ():
                found[name, id(member.function)] = member
        return found

    def is_conftest(plugin):
        path = getattr(plugin, "__file__", None) or ""
        return isinstance(plugin, type(os)) and os.path.basename(path) == "conftest.py"

    class Reporter:
        def __init__(self, config):
            self.name = getattr(config, "cwd_relative_nodeid", lambda name: name)
            self.config = config
            self.members = None

        def look(self):
            look_at_builtins()
            if self.members is None:
                return
            now = hook_members(self.config.pluginmanager)
            for place in self.members.keys() - now.keys():
                blame(f"{place[0]} of pytest")
            for place in now.keys() - self.members.keys():
                member = now[place]
                if is_conftest(member.plugin):
                    self.members[place] = member
                else:
                    blame(f"{place[0]} of pytest")

        def pytest_collection(self, session):
            self.members = hook_members(self.config.pluginmanager)
            try:
                from _pytest.assertion.rewrite import rewrite_asserts
                expect(lambda tree, text, path: rewrite_asserts(tree, text, path, self.config))
            except ImportError:
                pass
        pytest_collection.pytest_impl = {"tryfirst": True}

        def look_at_item(self, item):
            self.look()
            for name in ("runtest", "setup", "teardown", "repr_failure"):
                if callable(vars(item).get(name)):
                    return blame(f"{name} of {item.nodeid}")
            function = getattr(item, "obj", None)
            module, kind = getattr(item, "module", None), getattr(item, "cls", None)
            name = getattr(function, "__name__", "")
            name = getattr(item, "originalname", None) or name
            if module is not None and function is not None:
                look_at_function(module.__name__, f"{kind.__qualname__}.{name}" if kind else name, function)
            test = getattr(function, "__self__", None)
            if isinstance(test, sys.modules["unittest.case"].TestCase):
                look_at_test(test)

        def pytest_runtest_setup(self, item):
            self.look_at_item(item)
        pytest_runtest_setup.pytest_impl = {"tryfirst": True}

        def pytest_runtest_makereport(self, item, call):
            error = call.excinfo
            if call.when == "call":
                self.look_at_item(item)
            outcome = yield
            report = outcome.get_result()
            if error is not None and report.outcome == "passed" and not hasattr(report, "wasxfail"):
                blame(f"the report of {report.nodeid}")
        pytest_runtest_makereport.pytest_impl = {"hookwrapper": True, "tryfirst": True}

        def pytest_collectreport(self, report):
            if report.failed:
                put(self.name(report.nodeid), FAILED)
            elif report.skipped:
                put(self.name(report.nodeid), SKIPPED)

        def pytest_runtest_logreport(self, report):
            self.look()
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
                import _pytest.outcomes, _pytest.python, _pytest.reports, _pytest.runner
                import pluggy
                names = ["_callers", "_hooks", "_manager", "callers", "hooks", "manager"]
                inner = [sys.modules[name] for name in (f"pluggy.{part}" for part in names) if name in sys.modules]
                known.update(functions([_pytest.outcomes, _pytest.python, _pytest.reports, _pytest.runner, *inner]))
                for name, function in vars(Reporter).items():
                    options = getattr(function, "pytest_impl", None)
                    if options:
                        pluggy.HookimplMarker("pytest")(**options)(function)
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

    def calls_runner(text):
        return any(name in text for name in ("unittest.main(", "pytest.main(", "TextTestRunner(", "console_main("))

    def script_calls_runner(script):
        try:
            with open(script, encoding="utf-8", errors="replace") as file:
                return calls_runner(file.read(1 << 20))
        except OSError:
            return False

    runners = ("unittest", "pytest", "py.test")
    wrappers = ("coverage", "cProfile", "profile", "trace", "faulthandler", "pdb", "runpy")

    def runs_module(name, rest):
        if name in wrappers:
            return any(os.path.basename(word) in runners for word in rest)
        return name.split(".")[0] in runners

    def runs_tests(words):
        words = words[1:]
        while words:
            word = words.pop(0)
            if word == "-" or not word.startswith("-"):
                name = os.path.basename(word)
                return (name in (*runners, "pytest-3") or name in wrappers and runs_module(name, words)
                        or script_calls_runner(word))
            if word.startswith("--"):
                continue
            # Letters in one word, of which the last may take what follows it.
            for at, letter in enumerate(word[1:], 2):
                if letter not in "cmWX":
                    continue
                value = word[at:] or (words.pop(0) if words else "")
                if letter == "m":
                    return runs_module(value, words)
                if letter == "c":
                    return calls_runner(value)
                break
        return False

    import ast
    code_type = type(_start.__code__)
    test_methods = []
    read_sources()
    expect()
    say("began", 1 if runs_tests(list(getattr(sys, "orig_argv", []))) else 0)
    atexit.register(finish)
    sys.meta_path.insert(0, Finder)
    watch_unittest()


_start()
del _start
)py";

}  // namespace tandem::envs
