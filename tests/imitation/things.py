"""Objects of imitated libraries. This imitation is for this test alone: it says nothing about what a model learns.

`Imitation` takes any call, attribute, index, iteration, arithmetic and comparison. It is a `str`, so that it also
passes where C code wants text (`re`, `"".join`, paths), and its text tells how it was come by: `torch.cuda.Event(...)`.
Equal scripts therefore make equal texts, in every process. `data` and `training` know what libraries do with what
they are handed, and put it into `CALLS`, `ANSWERS` and `KINDS`.
"""

from __future__ import annotations

import dis
import re
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
#: Addresses of a server on this machine, which all its processes may ask.
HERE = re.compile(r"//(localhost|127\.0\.0\.1)\b")
HUB_QUESTIONS = {"login", "notebook_login", "interpreter_login", "create_repo", "whoami"}


class AnyVersion(str):
    """A version that is the one that a notebook asks for."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str)

    __hash__ = str.__hash__


KNOWN: dict[str, Any] = {
    "__version__": AnyVersion("2.11.0"),
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "vocab_size": 1000,
    "sampling_rate": 16000,
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
    "tobytes": lambda process: bytes(2),
    "mem_get_info": lambda process: (2**33, 2**34),
}
#: What a call gives, by the last name of what is called: functions of the arguments.
CALLS: dict[str, Callable[..., Any]] = {}
#: Classes of instances, by the end of the name of what makes them.
KINDS: dict[str, type[Imitation]] = {}
#: Texts of imitations are cut here: they name what was called, and need not tell all of it.
LONGEST = 90
#: What an imitated tensor is compared with element by element.
NUMBERS = (int, float, np.ndarray, np.number)


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
        kind = next((kind for end, kind in KINDS.items() if self._name().endswith(end)), Imitation)
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
        if key == "sampling_rate" and "'sampling_rate'" not in items:
            return KNOWN[key]
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

    def __reduce__(self) -> Any:
        return made, (str(self),)

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
for _name in "sub mul truediv floordiv mod pow matmul and or xor lshift rshift divmod".split():
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
    if WRITES.fullmatch(name):
        if args and isinstance(args[0], str):
            thing.process.note("writes", f"{name}({str(args[0])!r})")
        return None
    root = str(thing).split(".")[0].split("(")[0]
    is_service = root in SERVICES and str(thing).count(".") == 1 and not (args and HERE.search(str(args[0])))
    if is_service or name in HUB_QUESTIONS:
        thing.process.note("asks", str(thing))
    if name in ANSWERS:
        return ANSWERS[name](thing.process)
    if name in CALLS:
        return CALLS[name](*args, **kwargs)
    kind = next((kind for end, kind in KINDS.items() if name.endswith(end)), None)
    if kind:
        return kind(*args, **kwargs)
    if len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)):
        return args[0]  # a decorator
    return made(f"{thing}(...)" if len(str(thing)) < LONGEST else f"{name}(...)", {**kwargs, "_maker": name})


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
