"""A draw that a page asked for: its settings, checked; the work; and the steps on the way, as the page watches them."""

import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from usd3._internal.checks import Checks, as_count, as_share, require, require_type
from usd3._internal.random import seed_of
from usd3.core.belief import data_logits, model_belief
from usd3.core.samplers import Step
from usd3.kinds.page import Frame, FromPage
from usd3.pipeline.again import TRIES, until_valid
from usd3.pipeline.labels import split_where
from usd3.studio.models import Open

__all__ = ["FIELDS", "Listener", "Wish", "draw", "read_wish"]

FIELDS = {"model": True, "object": True} | dict.fromkeys(
    ("num", "steps", "sampler", "temperature", "top_p", "guidance", "seed", "where", "frames"), False
)
"""The fields of a request, and whether each is needed."""

_MOST_FRAMES, _USUAL_FRAMES = 100, 40
_LARGEST_SEED = 2**53 - 1  # that JavaScript can count to
_MOST_TEMPERATURE, _MOST_GUIDANCE = 10.0, 20.0
_LONGEST_WHERE, _MOST_CONDITIONS = 2000, 100
_SECONDS_APART = 0.05  # of two messages about the progress


class Listener(Protocol):
    """Who hears how a draw goes, and says whether it should go on."""

    def check(self) -> None:
        """Raise an error where the draw should end."""

    def tell(self, name: str, data: dict[str, Any]) -> None:
        """Hear of an event."""


@dataclass(frozen=True)
class Wish:
    """What a page asked for.

    Args:
        model: the name of the model.
        prompt: the one object to fill.
        num: how many objects to draw.
        steps: sampling steps.
        sampler: the name of a sampler.
        temperature: divides the logits.
        top_p: draw only from the fewest likeliest categories with this total probability.
        guidance: how closely to follow what is given.
        seed: of the draws.
        where: a condition, as `Pipeline.sample` takes it.
        frames: how many steps on the way to show.
    """

    model: str
    prompt: FromPage
    num: int
    steps: int
    sampler: str
    temperature: float = 1.0
    top_p: float = 1.0
    guidance: float = 1.0
    seed: int = 0
    where: Mapping[str, Any] | str | None = None
    frames: int = _USUAL_FRAMES


def read_wish(values: Mapping[str, Any], model: Open) -> Wish:
    """The wish in the fields of a request; an error names the field that is wrong."""
    known = {name: value for name, value in values.items() if value is not None}
    about = model.about_drawing()
    sampler = known.get("sampler", about["sampler"])
    require_type(isinstance(sampler, str), "sampler", sampler, "a name")
    names = [name.partition(":")[0] for name in model.samplers]
    require(sampler in names, "sampler", sampler, f"one of {', '.join(names)}")
    prompt = model.page.from_page([values["object"]])
    require(not bool(prompt.given.all()), "object", "nothing is open", "at least one element to draw: erase some")
    where = _condition(known.get("where"))
    if where is not None:
        model.pipeline.require_where(where)
    return Wish(
        model.name,
        prompt,
        as_count(known.get("num", about["num"]), "num", 1, model.most_num),
        as_count(known.get("steps", about["steps"]), "steps", 1, model.most_steps),
        next(name for name in model.samplers if name.partition(":")[0] == sampler),
        as_share(known.get("temperature", 1.0), "temperature", most=_MOST_TEMPERATURE, positive=True),
        as_share(known.get("top_p", 1.0), "top_p", positive=True),
        as_share(known.get("guidance", 1.0), "guidance", most=_MOST_GUIDANCE),
        as_count(known.get("seed", secrets.randbelow(2**31)), "seed", 0, _LARGEST_SEED),
        where,
        as_count(known.get("frames", _USUAL_FRAMES), "frames", 0, _MOST_FRAMES),
    )


def _condition(where: Any) -> Mapping[str, Any] | str | None:
    """A condition as the page sent it; None where it says nothing."""
    if isinstance(where, str):
        require(len(where) <= _LONGEST_WHERE, "where", f"{len(where):,} letters", f"at most {_LONGEST_WHERE:,}")
        return where if where.strip() else None
    require_type(where is None or isinstance(where, dict), "where", where, "a text or a mapping")
    if not where:
        return None
    require(len(where) <= _MOST_CONDITIONS, "where", f"{len(where)} conditions", f"at most {_MOST_CONDITIONS}")
    for name, value in where.items():
        parts = value if isinstance(value, list) else [value]
        plain = len(parts) <= _MOST_CONDITIONS and all(isinstance(one, str | int | float | None) for one in parts)
        short = plain and all(len(one) <= _LONGEST_WHERE for one in parts if isinstance(one, str))
        require(short, f"where[{name[:40]}]", type(value).__name__, "a value, or a short list of them")
    return dict(where)


def draw(model: Open, wish: Wish, listener: Listener) -> dict[str, Any]:
    """Draw what a page asked for; the data of the event `done`.

    Where a page shows the first object at once, it is drawn by itself: it depends on the seed alone, not on how many
    others follow.
    """
    began, pipeline, page = time.perf_counter(), model.pipeline, model.page
    watch = _Watch(model, wish, listener)
    hook = pipeline.model.register_forward_pre_hook(watch.before_call)
    try:
        labels, rest = (
            (None, None) if wish.where is None else split_where(wish.where, pipeline.config.labels, model.kind)
        )
        how: dict[str, Any] = {
            "num_steps": wish.steps,
            "sampler": wish.sampler,
            "temperature": wish.temperature,
            "top_p": wish.top_p,
            "guidance_scale": wish.guidance,
            "labels": labels,
            "callback": watch.after_step,
            "adjust": watch.see_logits if watch.reads_logits else None,
        }
        parts = [1, wish.num - 1] if page.shows_first and wish.num > 1 else [wish.num]
        x = _drawn(model, wish.prompt, parts[0], rest, how, wish.seed, watch.begin)
        if len(parts) > 1:
            listener.tell("first", {"object": page.to_page(x, wish.prompt, wish.seed, rest)[0]})
            others = _drawn(
                model, wish.prompt, parts[1], rest, how, seed_of(wish.seed, 1), lambda _: watch.begin(False)
            )
            x = torch.cat([x, others])
    except ValueError as error:
        raise ValueError(_in_words_of_the_page(str(error))) from None
    finally:
        hook.remove()
    listener.check()
    return {
        "objects": page.to_page(x, wish.prompt, wish.seed, rest),
        "seconds": round(time.perf_counter() - began, 3),
        "seed": wish.seed,
        "calls": watch.calls,
        "notes": page.notes(x, wish.prompt),
        "shares": page.shares(x, wish.prompt),
    }


def _drawn(
    model: Open,
    prompt: FromPage,
    num: int,
    where: Any,
    how: Mapping[str, Any],
    seed: int,
    begin: Callable[[bool], None],
) -> Tensor:
    """Objects (num, ...) that fill a prompt, under the part of a condition that is about elements.

    Those that break the rules of their kind are drawn again. Before each time, `begin` hears whether the first object
    is among them.
    """

    def draw(rows: Tensor, seed: int) -> Tensor:
        begin(bool((rows == 0).any()))
        tokens, given = (part.expand(len(rows), *part.shape[1:]) for part in (prompt.tokens, prompt.given))
        if not bool(given.any()):
            return model.pipeline.sample(len(rows), where=where, seed=seed, **how)
        if where is None:
            pad = model.page.pad(prompt)
            more = {} if pad is None else {"pad": pad.expand_as(tokens)}
            return model.pipeline.fill(tokens, given, seed=seed, **how, **more)
        weights = model.kind.weights(where)
        weights = weights if model.kind.filling is None else weights * model.kind.filling
        return model.pipeline.sample(tokens=tokens, given=given, where=weights, seed=seed, **how)

    return until_valid(draw, model.kind.obeys, num, TRIES, seed)


def _in_words_of_the_page(message: str) -> str:
    """A message that names the fields of a request instead of the arguments of `Pipeline.sample`."""
    return re.sub(r"^num_steps\b", "steps", re.sub(r"^guidance_scale\b", "guidance", message))


class _Watch:
    """Follows a draw: counts the calls of the network, tells of the progress, and shows some steps of the first object.

    The network's logits come through `Pipeline.sample(adjust=...)`, so a frame needs no call of its own. Where the
    output is no logits, a frame shows the state alone.
    """

    def __init__(self, model: Open, wish: Wish, listener: Listener):
        self.model, self.wish, self.listener = model, wish, listener
        self.calls = 0
        self._steps = model.pipeline.num_moves(wish.steps, wish.sampler)
        self._all_steps = self._steps * (2 if model.page.shows_first and wish.num > 1 else 1)
        self._done, self._step, self._shown, self._told = 0, 0, 0, 0.0
        self._has_first = True
        self._given = wish.prompt.given[0]
        self.reads_logits = model.pipeline.method.reads != "ratio"

    def begin(self, has_first: bool) -> None:
        """Called before objects are drawn, for the first time or again; `has_first`: the first is one of them."""
        self._has_first, self._step, self._shown = has_first, 0, 0

    def before_call(self, network: Any, inputs: Any) -> None:
        """Called before each call of the network."""
        self.listener.check()
        self.calls += 1

    def after_step(self, step: Step) -> None:
        """Called after each step, of each batch."""
        self.listener.check()
        if not self.reads_logits:
            self._show(lambda: self._state(step.x_t[0].cpu()))
        self._done, self._step = min(self._done + 1, self._all_steps), self._step + 1
        now = time.monotonic()
        if now - self._told >= _SECONDS_APART or self._done == self._all_steps:
            self._told = now
            self.listener.tell("progress", {"step": self._done, "steps": self._all_steps, "calls": self.calls})

    def see_logits(self, logits: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """The logits as they are, after a look at those of the first object."""
        self._show(lambda: self._guess(logits[:1], x_t[:1], t[:1].double()))
        return logits

    def _show(self, frame: Callable[[], Frame]) -> None:
        """Tell of a step of the first object, if the next frame is due."""
        is_first = self._has_first and self._step < self._steps
        if is_first and self._shown < self.wish.frames and self._step * self.wish.frames >= self._shown * self._steps:
            self._shown += 1
            shown = self.model.page.frame(frame(), self.wish.prompt)
            self.listener.tell("frame", {"step": self._step, "steps": self._steps, **shown})

    def _state(self, x: Tensor) -> Frame:
        """An object as it is: only a mask is open."""
        noise, top = self.model.pipeline.diffusion.noise, self.model.kind.num_classes - 1
        is_open = torch.zeros_like(x, dtype=torch.bool) if noise.mask is None else x == noise.mask
        return Frame(self.model.pipeline.decoded(x.clamp(max=top)), (~is_open).double(), is_open)

    def _guess(self, logits: Tensor, x: Tensor, time: Tensor) -> Frame:
        """The first object: what is still noise as the network guesses it, the rest as it is."""
        process = self.model.pipeline.diffusion
        noise = process.noise
        given = self._given[None].to(x.device)
        belief = model_belief(logits, x, noise, process.level(time, x), Checks(False), ~given)
        is_open = (belief.noised > 0.5) & ~given
        f, best = data_logits(logits, noise).softmax(-1).max(-1)
        tokens = torch.where(is_open, best, x)[0].cpu()
        sure = torch.where(is_open, f.double(), torch.where(given, 1.0, belief.f_x))[0].cpu()
        known = tokens.clamp(max=self.model.kind.num_classes - 1)
        return Frame(self.model.pipeline.decoded(known), sure.nan_to_num(0.0), is_open[0].cpu())
