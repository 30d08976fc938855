"""Objects of imitated libraries. This imitation is for this test alone: it says nothing about what a model learns.

`Imitation` takes any call, attribute, index, iteration, arithmetic and comparison. It is a `str`, so that it also
passes where C code wants text (`re`, `"".join`, paths), and its text tells how it was come by: `torch.cuda.Event(...)`.
Equal scripts therefore make equal texts, in every process. What libraries are handed is called, as they would.
"""

from __future__ import annotations

import dis
import functools
import inspect
import operator
import re
import signal
import sys
import types
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from typing import Any

import numpy as np

from tests.imitation.process import Process

#: Taken as they are: small, free of side effects, or (numpy) what scripts compute with.
REAL = {"numpy", "packaging", "tqdm", "jinja2", "regex", "typing_extensions", "tests"}
EXCEPTION = re.compile(r"[A-Z]\w*(Error|Exception|Warning|Timeout|Interrupt)|HTTPStatusError|ValidationErr")
WRITES = re.compile(
    r"save|save_\w+|to_csv|to_json|to_parquet|to_excel|savefig|imsave|imwrite|push_to_hub\w*|upload_\w+"
)
#: Libraries whose calls ask another machine (downloads of the hub are cached and locked: each process may).
SERVICES = {"requests", "httpx", "aiohttp", "openai", "anthropic", "boto3", "gdown", "kagglehub", "textarena_env"}
HUB_QUESTIONS = {"login", "notebook_login", "interpreter_login", "create_repo", "whoami"}
#: Given to each method of `transformers.TrainerCallback` that the notebook defines.
CALLBACK_EVENTS = (
    *("init_end", "train_begin", "epoch_begin", "step_begin", "substep_end", "pre_optimizer_step", "optimizer_step"),
    *("step_end", "prediction_step", "log", "evaluate", "predict", "save", "epoch_end", "train_end"),
)
#: What a model might answer: most extractions of the notebooks find something in it.
ANSWER = (
    "<think>Let me see.</think><reasoning>\nSix times seven.\n</reasoning>\n<answer>\n42\n</answer>"
    "<start_working_out>6 * 7<end_working_out><SOLUTION>42</SOLUTION>\n#### 42 \\boxed{42}\n"
    "```python\ndef strategy(board):\n    return 'W'\n```"
)
KNOWN: dict[str, Any] = {
    "__version__": "2.11.0",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "vocab_size": 1000,
    "eos_token": "</s>",
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "total_memory": 16 * 2**30,
    "status_code": 200,
    "returncode": 0,
}
ANSWERS: dict[str, Callable[[Process], Any]] = {
    "is_available": lambda process: True,
    "is_initialized": lambda process: process.world > 1,
    "is_bf16_supported": lambda process: True,
    "is_bfloat16_supported": lambda process: True,
    "device_count": lambda process: process.world,
    "current_device": lambda process: process.rank,
    "get_rank": lambda process: process.rank,
    "get_world_size": lambda process: process.world,
    "get_device_capability": lambda process: (8, 0),
    "get_device_name": lambda process: "Tesla T4",
    "max_memory_reserved": lambda process: 2**30,
    "max_memory_allocated": lambda process: 2**30,
    "mem_get_info": lambda process: (2**33, 2**34),
}
WAITS = {
    "wait_for_everyone",
    "barrier",
    "destroy_process_group",
    "all_reduce",
    "broadcast",
    "reduce",
    "gather_for_metrics",
}


class Imitation(str):
    """An object of an imitated library, or of a notebook's class that derives from one."""

    process: Process  # of all imitations: set once, when the process starts

    def __new__(cls, *args: Any, **kwargs: Any) -> Imitation:
        return str.__new__(cls, cls.__name__)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)

    def __init_subclass__(cls) -> None:
        """Let `super().name(...)` find each method of a notebook's class above it."""
        for base in cls.__bases__:
            if "_imitates" in vars(base):
                for name in vars(cls):
                    if not hasattr(base, name) and not name.startswith("__"):
                        setattr(base, name, _method(name))

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        kind = Trainer if self._name().endswith("Trainer") else Imitation
        return (type(self._name(), (kind,), {"_imitates": str(self)}),)

    def __getattr__(self, name: str) -> Any:
        if name in KNOWN:
            return KNOWN[name]
        if name in ("__name__", "__qualname__"):
            return self._name()
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        if EXCEPTION.fullmatch(name):
            value: Any = type(name, (Exception,), {})
        else:
            value = made(f"{self}.{name}" if len(str(self)) < LONGEST else name)
        self.__dict__[name] = value
        return value

    def _name(self) -> str:
        return re.split(r"\W+", str(self).replace("(...)", "").rstrip("]'\")"))[-1] or "thing"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return called(self, self._name(), args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        items = self.__dict__.setdefault("_items", {})
        shown = repr(key) if type(key) in (int, str) else "..."
        if shown not in items:
            items[shown] = made(f"{self}[{shown}]" if len(str(self)) < LONGEST else f"{self._name()}[{shown}]")
        return items[shown]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.__dict__.setdefault("_items", {})[repr(key) if type(key) in (int, str) else "..."] = value

    def __delitem__(self, key: Any) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter([self[n] for n in range(unpacked() or 2)])

    def __next__(self) -> Any:
        return self["next"]

    def __len__(self) -> int:
        return 2

    def __bool__(self) -> bool:
        return True

    def __index__(self) -> int:
        return 1

    __int__ = __ceil__ = __floor__ = __trunc__ = __index__

    def __float__(self) -> float:
        return 1.0

    def __complex__(self) -> complex:
        return 1j

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return made(f"{function.__name__}(...)")

    def __array_ufunc__(self, function: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return made(f"{function.__name__}(...)")

    def __format__(self, spec: str) -> str:
        return str(self)

    def __str__(self) -> str:
        return str.__str__(self)

    def __repr__(self) -> str:
        return str(self)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        return None

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *error: Any) -> None:
        return None

    def __await__(self) -> Any:
        yield from ()
        return self

    async def __aiter__(self) -> Any:
        for item in self:
            yield item

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, Imitation) and value.__dict__.get("_maker", self._name()) == self._name()

    def __subclasscheck__(self, kind: type) -> bool:
        return any(vars(base).get("_imitates") == str(self) for base in kind.__mro__)

    def __eq__(self, other: object) -> Any:
        return made("eq(...)") if isinstance(other, NUMBERS) else str.__eq__(self, other) is True

    def __ne__(self, other: object) -> Any:
        return made("ne(...)") if isinstance(other, NUMBERS) else str.__eq__(self, other) is not True

    __hash__ = str.__hash__

    def __add__(self, other: Any) -> Any:
        return made(f"{self}{other}") if isinstance(other, str) else made(f"{self} + ...")

    def __radd__(self, other: Any) -> Any:
        return made(f"{other}{self}") if isinstance(other, str) else made(f"{self} + ...")


#: What an imitated tensor is compared with element by element.
NUMBERS = (int, float, np.ndarray, np.number)
#: Texts of imitations are cut here: they name what was called, and need not tell all of it.
LONGEST = 90


def _method(name: str) -> Callable[..., Any]:
    def method(self: Imitation, *args: Any, **kwargs: Any) -> Any:
        return called(made(f"{self}.{name}"), name, args, kwargs)

    return method


class _Text:
    """A method of `str`, on an imitation: an imitation too, unless a notebook's class has its own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, thing: Any, kind: type) -> Any:
        return self if thing is None else thing.__getattr__(self.name)


for _name in dir(str):
    if not _name.startswith("__"):
        setattr(Imitation, _name, _Text(_name))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Imitation, f"__{_name}__", lambda self, other: True)
for _name in (
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
    "divmod",
):
    for _form in (f"__{_name}__", f"__r{_name}__"):
        setattr(Imitation, _form, lambda self, other, sign=_name: made(f"{sign}({self._name()})"))
for _name in ("neg", "pos", "abs", "invert", "round", "reversed"):
    setattr(Imitation, f"__{_name}__", lambda self, *args, sign=_name: made(f"{sign}({self._name()})"))


def made(text: str, given: dict[str, Any] | None = None, kind: type[Imitation] = Imitation) -> Imitation:
    """An imitation with a text, and with what it was made with as attributes."""
    thing = str.__new__(kind, text)
    thing.__dict__.update(given or {})
    return thing


def unpacked() -> int | None:
    """How many values the statement that asks for an iterator unpacks it into, if it does."""
    frame = sys._getframe(2)
    step, number = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    return number if step == dis.opmap["UNPACK_SEQUENCE"] else None


def called(thing: Imitation, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a call of an imitated function or class gives; notes what it does to others."""
    process = thing.process
    note_effects(thing, name, args)
    if name in ANSWERS:
        return ANSWERS[name](process)
    if name in WAITS:
        return process.joint(name)[0]
    if name in ("gather_object", "all_gather_object"):
        return [item for part in process.joint(name, args[0]) for item in part]
    if name == "broadcast_object_list":
        args[0][:] = process.joint(name, args[0])[0]
        return None
    if args and isinstance(args[0], Trainer):
        return args[0].train() if name == "unsloth_train" else args[0]  # `train_on_responses_only`
    if name == "execute_with_time_limit":
        return limited
    if name == "set_seed":
        return process.seed(args[0] if args else kwargs["seed"])
    if name in ("PartialState", "Accelerator", "AcceleratorState"):
        return made(name, kwargs, State)
    if name in TABLES:
        return TABLES[name](*args, **kwargs)
    if name.endswith("Trainer"):
        return Trainer(*args, **kwargs)
    if name in ("map", "filter", "apply", "applymap", "transform"):
        for function in filter(callable, args[:1]):
            if not isinstance(function, Imitation):
                function(Row(), **(kwargs.get("fn_kwargs") or {}))
    elif len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)):
        return args[0]  # a decorator
    return made(f"{thing}(...)" if len(str(thing)) < LONGEST else f"{name}(...)", {**kwargs, "_maker": name})


def limited(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is stopped, as `unsloth.execute_with_time_limit` makes it."""

    def stop(*args: Any) -> None:
        raise TimeoutError("timed out")

    def call(*args: Any, **kwargs: Any) -> Any:
        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 2)
        try:
            return function(*args, **kwargs)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    return call


def note_effects(thing: Imitation, name: str, args: tuple[Any, ...]) -> None:
    """Note a call that writes or asks another machine."""
    root = str(thing).split(".")[0].split("(")[0]
    if WRITES.fullmatch(name) and args and isinstance(args[0], str):
        thing.process.note("writes", f"{name}({str(args[0])!r})")
    elif (root in SERVICES and str(thing).count(".") == 1) or name in HUB_QUESTIONS:
        thing.process.note("asks", str(thing))


class State(Imitation):
    """`accelerate.PartialState` and `accelerate.Accelerator`."""

    rank = process_index = local_process_index = property(lambda self: self.process.rank)
    num_processes = property(lambda self: self.process.world)
    is_main_process = is_local_main_process = property(lambda self: self.process.rank == 0)
    is_last_process = property(lambda self: self.process.rank == self.process.world - 1)

    def wait_for_everyone(self) -> None:
        self.process.joint("wait_for_everyone")

    def destroy_process_group(self) -> None:
        self.process.joint("destroy_process_group")

    def main_process_first(self) -> Any:
        return MainFirst(self.process)

    local_main_process_first = main_process_first

    def on_main_process(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function if self.process.rank == 0 else lambda *args, **kwargs: None

    on_local_main_process = on_main_process


class MainFirst:
    """The main process goes through the block first."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def __enter__(self) -> None:
        if self.process.rank:
            self.process.joint("wait_for_everyone")

    def __exit__(self, *error: Any) -> None:
        if not self.process.rank:
            self.process.joint("wait_for_everyone")


class Trainer(Imitation):
    """Any trainer: trains by calling what it was handed, in every process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__.update(kwargs, _args=args, _callbacks=list(kwargs.get("callbacks") or ()))
        if hasattr(self, "reward_funcs") and "reward_funcs" in kwargs:
            self.process.seed(1000 + self.process.rank)  # as TRL: device_specific
            self.process.seeded = False

    def add_callback(self, callback: Any) -> None:
        self._callbacks.append(callback)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        self.process.joint("train", names=True, data=self.__dict__.get("train_dataset"))
        self.use_callbacks()
        self.use_rewards()
        self.use_functions()
        return made("trained")

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        self.process.joint("evaluate", names=True)
        self.use_functions()
        return made("evaluated")

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        self.process.joint("predict", names=True)
        return made("predicted")

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        """Trainers let one process save."""

    save_state = push_to_hub = save_metrics = log_metrics = save_model

    def use_callbacks(self) -> None:
        state = {"is_world_process_zero": self.process.rank == 0, "global_step": 10, "epoch": 1.0, "max_steps": 10}
        for callback in self._callbacks:
            callback = callback() if isinstance(callback, type) else callback
            for event in CALLBACK_EVENTS:
                if f"on_{event}" in {name for kind in type(callback).__mro__ for name in vars(kind)}:
                    getattr(callback, f"on_{event}")(
                        *(self.__dict__.get("args"), made("state", dict(state)), made("control")),
                        **{"model": made("model"), "logs": {"loss": 1.0}, "metrics": {"eval_loss": 1.0}},
                    )

    def some_rows(self) -> list[Any]:
        return list(Table.of(self.__dict__.get("train_dataset")))[:2] or [Row()]

    def use_rewards(self) -> None:
        rewards = self.__dict__.get("reward_funcs") or ()
        rows = self.some_rows()
        prompts = [row["prompt"] for row in rows for _ in range(2)]
        talks = isinstance(prompts[0], list)
        completions = [[{"role": "assistant", "content": ANSWER}] if talks else ANSWER for _ in prompts]
        columns = {name: [row[name] for row in rows for _ in range(2)] for name in rows[0] if name != "prompt"}
        for reward in rewards if isinstance(rewards, (list, tuple)) else [rewards]:
            if callable(reward) and not isinstance(reward, Imitation):
                self.process.draws_alike(
                    getattr(reward, "__name__", type(reward).__name__),
                    inspect.unwrap(reward).__code__.co_firstlineno if inspect.isfunction(reward) else 0,
                    functools.partial(reward, prompts=prompts, completions=completions, **columns),
                )

    def use_functions(self) -> None:
        given = {"compute_metrics": 1, "preprocess_logits_for_metrics": 2, "formatting_func": 1, "data_collator": 1}
        for name, number in given.items():
            function = self.__dict__.get(name)
            if callable(function) and type(function) is not Imitation and not isinstance(function, Trainer):
                values = self.some_rows() if name == "data_collator" else made("eval_prediction")
                function(*[self.some_rows()[0] if name == "formatting_func" else values] * number)
        if "_imitates" not in vars(type(self)) and "compute_loss" in {n for k in type(self).__mro__ for n in vars(k)}:
            self.compute_loss(made("model"), made("inputs"))


class Row(dict):  # type: ignore[type-arg]
    """A row of a data set, or the columns of some rows: has any column that it is asked for."""

    def __missing__(self, name: Any) -> Any:
        self[name] = column(str(name))
        return self[name]

    def __contains__(self, name: Any) -> bool:
        return True

    def keys(self) -> Any:
        return Names(self)


class Names(list):  # type: ignore[type-arg]
    """Names of columns: any is among them."""

    def __contains__(self, name: Any) -> bool:
        return True


class Talk(list):  # type: ignore[type-arg]
    """Messages; in some data sets the columns of this name hold text."""

    def __add__(self, other: Any) -> Any:
        return made(f"talk{other}") if isinstance(other, str) else Talk([*self, *other])


def column(name: str) -> Any:
    """A plausible value of a column."""
    if name in ("messages", "conversations", "conversation", "chosen", "rejected"):
        return Talk(
            {"role": role, "content": f"{name} {role}", "from": teller, "value": f"{name} {teller}"}
            for role, teller in (("user", "human"), ("assistant", "gpt"))
        )
    return 1 if name in ("label", "score") else made(f"row[{name!r}]")


class Table(Imitation):
    """`datasets.Dataset`: rows that have any column they are asked for; also a `DatasetDict` of itself."""

    @staticmethod
    def of(rows: Any) -> Any:
        if isinstance(rows, Table):
            return rows
        if isinstance(rows, (list, tuple)) and rows and isinstance(rows[0], dict):
            return Table.from_list(list(rows))
        return made("data", {"_rows": [Row(), Row(), Row()]}, Table)

    @staticmethod
    def from_list(rows: Any, *args: Any, **kwargs: Any) -> Table:
        kept = [Row(row) if isinstance(row, dict) else row for row in rows]
        return made("data", {"_rows": kept}, Table)  # type: ignore[return-value]

    @staticmethod
    def from_dict(columns: Any, *args: Any, **kwargs: Any) -> Table:
        names = list(columns)
        return Table.from_list([dict(zip(names, row, strict=False)) for row in zip(*columns.values(), strict=False)])

    @staticmethod
    def from_generator(function: Any, *args: Any, **kwargs: Any) -> Table:
        return Table.from_list(list(function(**kwargs.get("gen_kwargs", {}))))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key in ("train", "test", "validation", "val", "eval", "dev") and key not in list(self._rows[0]):
                return self
            return [row[key] for row in self._rows]
        if isinstance(key, slice):
            return Row({name: self[name][key] for name in self._rows[0]})
        return self._rows[operator.index(key) % len(self._rows)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def map(self, function: Any = None, *args: Any, **kwargs: Any) -> Table:
        if function is None or isinstance(function, Imitation):
            return self
        extra = list((kwargs.get("fn_kwargs") or {}).items())
        rows = [Row(row) for row in self._rows[:3]]
        if kwargs.get("batched"):
            batch = Batch(rows)
            batch.update({name: [row[name] for row in rows] for name in rows[0]})
            result = function(batch, *([[0, 1]] if kwargs.get("with_indices") else []), **dict(extra))
            if isinstance(result, dict):
                columns = {name: list(values) for name, values in result.items() if not isinstance(values, Imitation)}
                rows = [Row(row) for row in Table.from_dict(columns)] if columns else rows
        else:
            for number, row in enumerate(rows):
                result = function(row, *([number] if kwargs.get("with_indices") else []), **dict(extra))
                row.update(result if isinstance(result, dict) else {})
        return Table.from_list(rows)

    def filter(self, function: Any = None, *args: Any, **kwargs: Any) -> Table:
        self.map(function, *args, **{**kwargs, "fn_kwargs": kwargs.get("fn_kwargs")})
        return self

    def column_names(self) -> Any:
        return Names(self._rows[0])

    column_names = property(column_names)  # type: ignore[assignment]

    def to_list(self) -> list[Any]:
        return list(self._rows)

    def train_test_split(self, *args: Any, **kwargs: Any) -> dict[str, Table]:
        return Row(train=self, test=self)

    def add_column(self, name: str, values: Any, *args: Any, **kwargs: Any) -> Table:
        return Table.from_list([{**row, name: value} for row, value in zip(self._rows, values, strict=False)])


for _name in (
    "shuffle",
    "select",
    "take",
    "skip",
    "shard",
    "rename_column",
    "rename_columns",
    "remove_columns",
    "sort",
):
    setattr(Table, _name, lambda self, *args, **kwargs: self)
for _name in (
    "with_transform",
    "with_format",
    "set_format",
    "cast_column",
    "select_columns",
    "repeat",
    "flatten",
    "batch",
):
    setattr(Table, _name, lambda self, *args, **kwargs: self)


class Batch(Row):
    """Columns of some rows."""

    def __init__(self, rows: list[Row]) -> None:
        super().__init__()
        self.rows = rows

    def __missing__(self, name: Any) -> Any:
        self[name] = [row[name] for row in self.rows]
        return self[name]


TABLES: dict[str, Callable[..., Any]] = {
    "load_dataset": lambda *args, **kwargs: Table.of(None),
    "load_from_disk": lambda *args, **kwargs: Table.of(None),
    "from_list": Table.from_list,
    "from_dict": Table.from_dict,
    "from_generator": Table.from_generator,
    "from_pandas": lambda *args, **kwargs: Table.of(None),
    "concatenate_datasets": lambda parts, **kwargs: Table.from_list([row for part in parts for row in part]),
    "interleave_datasets": lambda parts, **kwargs: Table.from_list([row for part in parts for row in part]),
}


def array_of(real: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numpy, which gives an imitation where it is given some."""

    def array(value: Any, *args: Any, **kwargs: Any) -> Any:
        items = value[:3] if isinstance(value, (list, tuple)) else [value]
        return (
            made(f"{real.__name__}(...)")
            if any(isinstance(item, Imitation) for item in items)
            else real(value, *args, **kwargs)
        )

    return array


for _name in ("array", "asarray", "mean", "sum", "std", "median", "min", "max", "stack", "concatenate", "quantile"):
    setattr(np, _name, array_of(getattr(np, _name)))


class Module(types.ModuleType):
    """An imitated module: has everything."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(made(self.__name__), name)
        setattr(self, name, value)
        return value


class Finder:
    """Imports every module that is neither Python's own nor in `REAL` as an imitation."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        top = name.split(".")[0]
        if top in sys.stdlib_module_names or top in REAL:
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass
