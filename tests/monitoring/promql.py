"""Which labels a PromQL expression gives, found by reading it; and what it names that is not."""

from collections.abc import Mapping

import promql_parser as ql

Labels = Mapping[str, frozenset[str]]
"""The labels of every series that there is, by its name."""

_NO_LABELS = frozenset[str]()


class UnknownNameError(Exception):
    """The expression names a metric or a label that is nowhere exported."""


def labels_of(text: str, series: Labels) -> frozenset[str]:
    """The labels that the result of an expression has.

    Raises:
        UnknownNameError: it names a metric or a label that is not in `series`.
        ValueError: it is not PromQL.
    """
    # A variable of Grafana's; any duration will do.
    return _labels(ql.parse(text.replace("$__rate_interval", "5m")), series)


def _labels(expr: ql.Expr, series: Labels) -> frozenset[str]:
    match expr:
        case ql.VectorSelector():
            return _selected(expr, series)
        case ql.MatrixSelector():
            return _selected(expr.vector_selector, series)
        case ql.ParenExpr() | ql.UnaryExpr() | ql.SubqueryExpr():
            return _labels(expr.expr, series)
        case ql.AggregateExpr():
            return _aggregated(expr, series)
        case ql.BinaryExpr():
            return _combined(expr, series)
        case ql.Call():
            return _called(expr, series)
        case ql.NumberLiteral() | ql.StringLiteral():
            return _NO_LABELS
    raise NotImplementedError(f"{type(expr).__name__}: {expr}")


def _selected(selector: ql.VectorSelector, series: Labels) -> frozenset[str]:
    name = selector.name
    if name not in series:
        raise UnknownNameError(f"no service exports {name}")
    _check(f"{name} has no label", {each.name for each in selector.matchers.matchers}, series[name])
    return series[name]


def _aggregated(expr: ql.AggregateExpr, series: Labels) -> frozenset[str]:
    inner = _labels(expr.expr, series)
    if expr.modifier is None:
        return _NO_LABELS
    named = frozenset(expr.modifier.labels)
    _check(f"in '{expr}' nothing has the label", named, inner)
    return named if expr.modifier.type == ql.AggModifierType.By else inner - named


def _combined(expr: ql.BinaryExpr, series: Labels) -> frozenset[str]:
    left, right = _labels(expr.lhs, series), _labels(expr.rhs, series)
    matching = expr.modifier.matching if expr.modifier is not None else None
    if matching is not None:
        _check(f"in '{expr}' one side lacks the label", frozenset(matching.labels), left & right)
    if str(expr.op) == "or":
        return left | right
    # A number on the left takes the labels of the other side.
    return left or right


def _called(call: ql.Call, series: Labels) -> frozenset[str]:
    given = [_labels(each, series) for each in call.args]
    labels = _NO_LABELS.union(*given)
    match call.func.name:
        case "absent":
            return _NO_LABELS
        case "histogram_quantile":
            _check(f"'{call}' needs the label", {"le"}, labels)
            return labels - {"le"}
        case "label_replace":
            return labels | {call.args[1].val}
    return labels


def _check(problem: str, named: set[str] | frozenset[str], there: frozenset[str]) -> None:
    if unknown := named - there:
        raise UnknownNameError(f"{problem} {', '.join(sorted(unknown))}")
