"""Imitated data sets: a few rows, whose columns are those that a notebook asks for, and functions called on them."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from tests.imitation.things import CALLS, Imitation, made


class Row(dict):  # type: ignore[type-arg]
    """A row of a data set that is loaded from elsewhere: has any column that it is asked for."""

    def __missing__(self, name: Any) -> Any:
        return column(str(name))

    def __contains__(self, name: Any) -> bool:
        return True

    def get(self, name: Any, default: Any = None) -> Any:
        return self[name]

    def keys(self) -> Any:
        return Names(self)


class Batch(Row):
    """Columns of some rows."""

    def __init__(self, rows: list[Any]) -> None:
        super().__init__({name: [row[name] for row in rows] for name in rows[0]})
        self.rows = rows

    def __missing__(self, name: Any) -> Any:
        return [row[name] for row in self.rows]


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


SPLITS = ("train", "test", "validation", "val", "eval", "dev")


class Table(Imitation):
    """`datasets.Dataset`, and a `DatasetDict` of itself."""

    @staticmethod
    def of(rows: Any) -> Any:
        """What a trainer is handed, as a table."""
        if isinstance(rows, Table):
            return rows
        if isinstance(rows, (list, tuple)) and rows and isinstance(rows[0], dict):
            return Table.from_list(rows)
        return loaded()

    @staticmethod
    def from_list(rows: Any, *args: Any, **kwargs: Any) -> Imitation:
        return made("data", {"_rows": list(rows)}, Table)

    @staticmethod
    def from_dict(columns: Any, *args: Any, **kwargs: Any) -> Imitation:
        rows = zip(*columns.values(), strict=False)
        return Table.from_list(dict(zip(columns, row, strict=False)) for row in rows)

    @staticmethod
    def from_generator(function: Any, *args: Any, **kwargs: Any) -> Imitation:
        return Table.from_list(function(**kwargs.get("gen_kwargs", {})))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key in SPLITS and key not in list(self._rows[0]):
                return self
            return [row[key] for row in self._rows]
        if isinstance(key, slice):
            return Batch(self._rows[key] or self._rows[:1])
        return self._rows[operator.index(key) % len(self._rows)]

    def map(self, function: Any = None, *args: Any, **kwargs: Any) -> Any:
        if function is None or isinstance(function, Imitation):
            return self
        rows = [type(row)(row) for row in self._rows[:3]]
        batches = [Batch(rows)] if kwargs.get("batched") else rows
        for number, given in enumerate(batches):
            place = [list(range(len(rows))) if kwargs.get("batched") else number] * bool(kwargs.get("with_indices"))
            result = function(given, *place, **(kwargs.get("fn_kwargs") or {}))
            if isinstance(result, dict) and kwargs.get("batched"):
                columns = {name: list(values) for name, values in result.items() if not isinstance(values, Imitation)}
                new = list(Table.from_dict(columns)) or rows
                kept = rows if len(new) == len(rows) and not kwargs.get("remove_columns") else [{}] * len(new)
                rows = [type(row)({**row, **values}) for row, values in zip(kept, new, strict=True)]
            elif isinstance(result, dict):
                given.update(result)
        return Table.from_list(rows)

    def filter(self, function: Any = None, *args: Any, **kwargs: Any) -> Any:
        self.map(function, *args, **kwargs)
        return self

    def to_list(self) -> list[Any]:
        return list(self._rows)

    def train_test_split(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"train": self, "test": self}

    def add_column(self, name: str, values: Any, *args: Any, **kwargs: Any) -> Any:
        return Table.from_list(type(row)({**row, name: value}) for row, value in zip(self._rows, values, strict=False))

    column_names = property(
        lambda self: Names(self._rows[0]) if isinstance(self._rows[0], Row) else list(self._rows[0])
    )


for _name in (
    "shuffle select take skip shard sort repeat flatten batch rename_column rename_columns remove_columns "
    "select_columns with_transform with_format set_format cast_column cast"
).split():
    setattr(Table, _name, lambda self, *args, **kwargs: self)


def loaded(*args: Any, **kwargs: Any) -> Imitation:
    """A data set from elsewhere."""
    return Table.from_list([Row(), Row(), Row()])


def joined(tables: Any, *args: Any, **kwargs: Any) -> Imitation:
    return Table.from_list(row for table in tables for row in table)


def applied(function: Any = None, *args: Any, **kwargs: Any) -> Imitation:
    """`DataFrame.apply` and the like, of what is no table."""
    if callable(function) and not isinstance(function, Imitation):
        function(Row(), **(kwargs.get("fn_kwargs") or {}))
    return made("applied")


CALLS |= {
    **dict.fromkeys(("load_dataset", "load_from_disk", "from_pandas"), loaded),
    **dict.fromkeys(("concatenate_datasets", "interleave_datasets"), joined),
    **dict.fromkeys(("map", "filter", "apply", "applymap", "transform"), applied),
    "from_list": Table.from_list,
    "from_dict": Table.from_dict,
    "from_generator": Table.from_generator,
}
