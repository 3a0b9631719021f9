"""The optimizer contract: pure functions of arrays; the learning rate is state."""

from __future__ import annotations

import abc
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax

from exburn.core import registry
from exburn.core.checks import (
    check_count,
    check_number,
    check_optional,
    check_rate,
    check_text,
)
from exburn.core.variable_proxy import Handle
from exburn.errors import ArgumentError, NotBuiltError, unknown_name
from exburn.optimizers import eager, stepwise
from exburn.optimizers.config import OLD_NAMES, arguments_from, describe, meant_by
from exburn.optimizers.exclusions import exactly
from exburn.optimizers.live import LiveState, check_learning_rate, refuse_with_schedule
from exburn.optimizers.rate import current_rate, host_value, replace_leaf
from exburn.optimizers.trees import same_shapes
from exburn.optimizers.update import add_gradients, make_state, step, unscale
from exburn.optimizers.variable import OptimizerVariable, live_number, variables_of

__all__ = ["Optimizer"]

_SETTABLE = ("learning_rate", "scale", "warmup_from", "warmup_to", "warmup_steps")


class Optimizer(abc.ABC):
    """Turns gradients into new parameters; a subclass supplies the update rule.

    The rule is either a ``transformation``, one of optax, or as in Keras an
    ``update_step(gradient, variable, learning_rate)`` that assigns to the variable and
    to those that ``build`` has added.

    An optimizer is a pure pair ``init(params) -> state`` and
    ``update(grads, state, params) -> (params, state)`` over any tree of arrays, fit for
    ``jit``, ``lax.scan`` and ``vmap``: the state that comes out has the shapes and
    dtypes of the state that went in. One update runs, in this order: undo the loss
    scale, average accumulated gradients, clip, ``g += l2_weight_decay * p``,
    ``p -= learning_rate * weight_decay * p``, the rule, the moving average.

    The learning rate is an array of the state, so changing it compiles nothing. At
    update number ``c`` it is ``warmup_from + (warmup_to − warmup_from) · c /
    warmup_steps`` while ``c < warmup_steps``, and ``scale`` times the schedule or the
    learning rate afterwards. A schedule is given the number of batches seen, which
    with gradient accumulation is more than the number of updates, as in Keras.

    Parameters in 16-bit floats are updated in float32, with float32 optimizer state,
    and what rounding them takes off is kept, in as many bits, for the next update:
    in bfloat16, ``0.999 * v`` would not change ``v`` at all, and small updates would
    be lost one by one.

    Args:
        learning_rate: A number ≥ 0, a schedule, or a function of the step; a function
            of nothing is called at once for the number.
        weight_decay: Decoupled decay as in Keras, for every optimizer:
            ``p -= learning_rate * weight_decay * p`` before the update.
        clipnorm: Largest norm of the gradient of each parameter.
        clipvalue: Largest absolute value of each gradient element.
        global_clipnorm: Largest norm of all gradients together.
        use_ema: Keep an exponential moving average of the parameters in the state.
        ema_momentum: Share of the old average, from 0 to 1.
        ema_overwrite_frequency: Write the average into the parameters every so many
            updates.
        loss_scale_factor: The loss is multiplied by this, and gradients divided by it.
        gradient_accumulation_steps: Number of batches, at least 2, whose mean gradient
            makes one update.
        name: Name of the optimizer; its class name in snake case by default.
        l2_weight_decay: ExBurn's decay, ``g += l2_weight_decay * p`` after clipping,
            which is an L2 penalty: adaptive rules rescale it, momentum accumulates it.
            It is an argument of its own because Keras' ``weight_decay`` means the
            decoupled kind, and the two train differently.
        weight_decay_exclusions: Patterns as for :meth:`exclude_from_weight_decay`.

    Shape:
        params, grads: trees of equal structure and shapes, any rank → the same.

    Raises:
        ArgumentError: A value can never work, such as a negative learning rate or two
            kinds of clipping other than ``global_clipnorm`` and ``clipvalue``.

    Example:
        >>> import numpy as np
        >>> from exburn.optimizers import SGD
        >>> optimizer = SGD(0.1, momentum=0.0)
        >>> params = {"w": np.ones(2, np.float32)}
        >>> state = optimizer.init(params)
        >>> params, state = optimizer.update({"w": np.ones(2)}, state, params)
        >>> round(float(params["w"][0]), 6), int(state["rate"]["count"])
        (0.9, 1)

    Source: Loshchilov & Hutter, *Decoupled Weight Decay Regularization*, 2019;
    Pascanu et al., *On the Difficulty of Training Recurrent Neural Networks*, 2013
    (clipping); Polyak & Juditsky, *Acceleration of Stochastic Approximation by
    Averaging*, 1992.
    """

    #: Whether ``update`` takes the loss as a function, ``value_fn``, to search along.
    searches = False
    #: Whether parameters in 16-bit floats are updated in float32.
    widens = True

    __signature__: inspect.Signature
    _given: frozenset[str]
    #: The learning rate that holds again after a fit with a schedule of its own.
    _number: float = 0.0
    _undecayed: Sequence[Any] = ()  # given to exclude_from_weight_decay
    _lists: eager.ListLayout | None = None  # of the lists that ``build`` was given
    _pass: stepwise.RulePass | None = None  # under way, of an ``update_step``

    def __new__(cls, *args: Any, **kwargs: Any):
        self = super().__new__(cls)
        object.__setattr__(self, "_given", frozenset(kwargs))
        return self

    def __init_subclass__(cls, **kwargs):
        """Shows the common options in the signature of a class that takes **options."""
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "update_step"):
            stepwise.adopt_rule(cls)
        own = list(inspect.signature(cls.__init__).parameters.values())[1:]
        if own and own[-1].kind is inspect.Parameter.VAR_KEYWORD:
            names = {parameter.name for parameter in own}
            common = inspect.signature(Optimizer.__init__).parameters.values()
            own[-1:] = [
                parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
                for parameter in list(common)[1:-1]
                if parameter.name not in names
            ]
        cls.__signature__ = inspect.Signature(own)
        if cls.__module__.startswith("exburn.optimizers."):
            registry.register_builtin(cls)

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str | None = None,
        l2_weight_decay: float | None = None,
        weight_decay_exclusions: Sequence[str] = (),
        **unknown: Any,
    ):
        op = type(self).__name__
        for argument in unknown:
            if argument in OLD_NAMES:
                raise ArgumentError(
                    op,
                    f"there is no argument {argument!r}",
                    hint=f"Use {OLD_NAMES[argument]}.",
                )
            known = inspect.signature(type(self)).parameters
            raise unknown_name("argument", argument, known, op=op)
        self._live = LiveState()
        self._scale, self._revision, self._told = 1.0, 0, None
        self._learning_rate = self._check_rate(learning_rate)
        default = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", op).lower()
        self.name = check_text(op, "name", default if name is None else name)
        number = partial(check_optional, check_number, op)
        steps = partial(check_optional, check_count, op, floats=True)
        self.weight_decay = number("weight_decay", weight_decay)
        self.l2_weight_decay = number("l2_weight_decay", l2_weight_decay)
        self.clipnorm = number("clipnorm", clipnorm, open_low=True)
        self.clipvalue = number("clipvalue", clipvalue, open_low=True)
        self.global_clipnorm = number("global_clipnorm", global_clipnorm, open_low=True)
        clips = ("clipnorm", "clipvalue", "global_clipnorm")
        given = {k: getattr(self, k) for k in clips if getattr(self, k) is not None}
        # ExBurn clips by the global norm and then by value.
        if len(given) > 1 and set(given) != {"clipvalue", "global_clipnorm"}:
            raise ArgumentError(op, "only one kind of clipping can be used", given)
        self.use_ema = bool(use_ema)
        self.ema_momentum = check_rate(op, "ema_momentum", ema_momentum)
        self.ema_overwrite_frequency = steps(
            "ema_overwrite_frequency", ema_overwrite_frequency
        )
        self.loss_scale_factor = number(
            "loss_scale_factor", loss_scale_factor, open_low=True
        )
        self.gradient_accumulation_steps = steps(
            "gradient_accumulation_steps", gradient_accumulation_steps, 2
        )
        self.weight_decay_exclusions = tuple(weight_decay_exclusions)

    def __setattr__(self, name: str, value: Any) -> None:
        # Nothing would read it, and the training would go on as before.
        if name not in vars(self) and (meant := meant_by(type(self), name)):
            raise ArgumentError(
                type(self).__name__,
                f"there is no {name!r} to set",
                hint=f"Set {meant}.",
            )
        before = vars(self).get(name)
        object.__setattr__(self, name, value)
        if self._pass is not None:  # build, which runs in every trace
            return
        if type(before) is type(value) in (bool, int, float, str) and before == value:
            return
        if not name.startswith("_") and name not in ("learning_rate", "scale"):
            self._revision = getattr(self, "_revision", 0) + 1

    # ------------------------------------------------------------------ update
    @abc.abstractmethod
    def transformation(
        self, learning_rate: Any, count: Any
    ) -> optax.GradientTransformation:
        """The update rule of one update, as an optax transformation.

        Args:
            learning_rate: float32 scalar, the rate of this update.
            count: int32 scalar, the number of updates before this one.
        """

    def apply_rule(
        self, grads: Any, inner: Any, params: Any, learning_rate: Any, count: Any
    ) -> tuple[Any, Any]:
        """What is added to the parameters, and the rule's new state."""
        rule = self.transformation(learning_rate, count)
        return rule.update(grads, inner, params)

    def init_rule(self, params: Any) -> Any:
        """The rule's state before the first update."""
        return self.transformation(jnp.float32(0.0), jnp.int32(0)).init(params)

    def decay_of(self, path: str, shape: tuple[int, ...]) -> float | None:
        """The decoupled weight decay of a parameter that is not excluded from it."""
        return self.weight_decay

    def init(self, params: Any) -> dict[str, Any]:
        """The state before the first update; nothing is compiled for it.

        Args:
            params: Tree of arrays, usually nested dicts.
        """
        # Under a schedule, which may not know its epochs yet, the number is not used.
        rate = self._number if callable(self._learning_rate) else self._learning_rate
        return make_state(self, params, rate)

    def update(
        self, grads: Any, opt_state: Mapping[str, Any], params: Any
    ) -> tuple[Any, dict[str, Any]]:
        """One step from gradients: ``(new_params, new_opt_state)``.

        With ``gradient_accumulation_steps`` this is one batch of a group: it updates
        if it is the group's last. A loop over whole groups calls ``accumulate_batch``
        for each batch and ``update_accumulated`` once, and asks nothing.

        Args:
            grads: Tree like ``params``.
            opt_state: What ``init`` or the last ``update`` returned.
            params: Tree of arrays.

        Raises:
            ShapeError: Gradients, parameters and state do not belong together.
        """
        same_shapes(f"{type(self).__name__}.update", grads, params)
        if "accumulated" not in opt_state:
            return self._step(unscale(self, grads), dict(opt_state), params)
        state = self.accumulate_batch(grads, opt_state)
        return jax.lax.cond(
            state["accumulated"]["batches"] >= self.accumulate,
            lambda: self.update_accumulated(state, params),
            lambda: (params, state),
        )

    def accumulate_batch(
        self, grads: Any, opt_state: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The state with one more batch's gradients in its sums; updates nothing."""
        sums = add_gradients(opt_state["accumulated"], unscale(self, grads))
        return {**opt_state, "accumulated": sums}

    def update_accumulated(
        self, opt_state: Mapping[str, Any], params: Any
    ) -> tuple[Any, dict[str, Any]]:
        """The one update of a group, from the mean of its gradients."""
        state = dict(opt_state)
        total = state.pop("accumulated")["gradients"]
        mean = jax.tree.map(lambda s: s / self.accumulate, total)
        new_params, new_state = self._step(mean, state, params)
        zeros = jax.tree.map(jnp.zeros_like, total)
        new_state["accumulated"] = {"gradients": zeros, "batches": jnp.int32(0)}
        return new_params, new_state

    def _step(self, grads, state, params) -> tuple[Any, dict[str, Any]]:
        return step(self, grads, state, params)

    # ------------------------------------------------------------------ loss, averages
    @property
    def scales_loss(self) -> bool:
        """Whether the loss must go through :meth:`scale_loss` before ``grad``."""
        return self.loss_scale_factor is not None

    def check_paths(self, paths: Sequence[str]) -> None:
        """Checks what it knows parameters by, where all weights of a model are known.

        Args:
            paths: The model's weights, frozen ones too.
        """
        return

    def skips(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Any:
        """Whether the update between two states was left out; None: it never is."""
        return None

    def scale_loss(self, loss: Any, opt_state: Mapping[str, Any] | None = None) -> Any:
        """The loss to differentiate; ``update`` divides its gradients again."""
        factor = self.loss_scale_factor
        return loss if factor is None else loss * factor

    @property
    def keeps_average(self) -> bool:
        """Whether ``final_params`` are averages of the parameters."""
        return self.use_ema

    def ema_params(self, opt_state: Mapping[str, Any]) -> Any:
        """The moving average of the parameters (float32 for 16-bit parameters).

        Raises:
            ArgumentError: The optimizer keeps none (``use_ema=False``).
        """
        if "average" not in opt_state:
            raise ArgumentError(
                "ema_params",
                f"{self.name} keeps no moving average of the parameters",
                hint=f"Make it with use_ema=True: {type(self).__name__}(use_ema=True).",
            )
        return opt_state["average"]

    def final_params(self, opt_state: Mapping[str, Any], params: Any) -> Any:
        """The parameters to keep when training ends: the average if there is one."""
        if not self.use_ema:
            return params
        return jax.tree.map(
            lambda p, a: a.astype(p.dtype), params, self.ema_params(opt_state)
        )

    def exclude_from_weight_decay(
        self,
        var_list: Iterable[Any] | None = None,
        var_names: Iterable[str] | None = None,
    ) -> None:
        """Leaves parameters out of both kinds of weight decay.

        Args:
            var_list: Paths of parameters, or objects with a ``path``, which are told
                apart from others of the same path where ``build`` is given them.
            var_names: Regular expressions, searched in a parameter's name (the last
                part of its path) or, if they contain a slash, in its whole path.

        Raises:
            ArgumentError: Training has begun.

        Example:
            >>> from exburn.optimizers import AdamW
            >>> optimizer = AdamW(weight_decay=0.01)
            >>> optimizer.exclude_from_weight_decay(var_names=["bias", "scale"])
            >>> optimizer.weight_decay_exclusions
            ('bias', 'scale')
        """
        if self._live.state is not None:
            raise ArgumentError(
                "exclude_from_weight_decay",
                "weight decay cannot change once the optimizer has a state",
                hint="Call it before compile().",
            )
        given = list(var_list or ())
        self._undecayed = [v for v in given if hasattr(v, "path")]
        exact = [exactly(getattr(v, "path", v)) for v in given]
        self.weight_decay_exclusions = (*exact, *(var_names or ()))

    # ------------------------------------------------------------------ live state
    def bind(
        self,
        get_state: Callable[[], Any] | None,
        set_state: Callable[[Any], None] | None,
    ) -> None:
        """Connects the optimizer to a live state.

        Args:
            get_state: Returns the current ``opt_state``, or None if there is none yet.
            set_state: Replaces it. ``bind(None, None)`` disconnects; the learning rate
                and scale of the live state are then kept.
        """
        if get_state is None and self._live.state is not None:
            if not callable(self._learning_rate):
                self._learning_rate = self.learning_rate
            self._scale = self.scale
        self._live = LiveState(get_state, set_state)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copies: with the learning rate, without the live state."""
        state = vars(self) | {"_live": LiveState()}
        if self._live.state is not None:
            state["_scale"] = self.scale
            if not callable(self._learning_rate):
                state["_learning_rate"] = self.learning_rate
        return state

    def _change(self, **values: Any) -> None:
        if (state := self._live.state) is not None:
            self._live.state = self.with_hyperparameters(state, **values)

    @property
    def revision(self) -> int:
        """Grows whenever something changed that a compiled update has built in."""
        return self._revision

    def settings(self) -> dict[str, Any]:
        """What a compiled update has built in, by name.

        Example:
            >>> from exburn.optimizers import SGD
            >>> SGD(0.1, momentum=0.5).settings()["momentum"]
            0.5
        """
        options = {
            name: value
            for name, value in vars(self).items()
            if name[0] != "_" and name != "name" and not stepwise.holds_slots(value)
        }
        options["learning_rate"] = self.schedule or float  # a number is no part of it
        if self._told is not None:
            options["the schedule's (steps per epoch, epochs)"] = self._told
        return {"class": type(self), **options}

    @property
    def accumulate(self) -> int:
        """Number of batches whose mean gradient makes one update."""
        return self.gradient_accumulation_steps or 1

    @property
    def schedule(self) -> Callable[[Any], Any] | None:
        """The learning-rate schedule, or None."""
        return self._learning_rate if callable(self._learning_rate) else None

    def set_epochs(self, steps_per_epoch: int | None, epochs: int | None) -> None:
        """Tells a schedule that counts epochs how long an epoch and the run are.

        What the schedule was given in its constructor is not changed.
        """
        bind = getattr(self.schedule, "set_epochs", None)
        if bind is not None and bind(steps_per_epoch, epochs):
            self._revision += 1
            self._told = steps_per_epoch, epochs

    def _schedule_at(self, count: Any) -> Any:
        # Keras' schedules count batches: update c uses batch c·k + (k − 1).
        k = self.accumulate
        return self._learning_rate(count if k == 1 else count * k + (k - 1))

    def rate(self, opt_state: Mapping[str, Any]) -> Any:
        """The learning rate that the next update will use, as a float32 scalar."""
        schedule = self._schedule_at if callable(self._learning_rate) else None
        return current_rate(opt_state["rate"], schedule)

    @property
    def learning_rate(self) -> Any:
        """The learning rate, or the schedule's current value, before ``scale``.

        Raises:
            ArgumentError: A number is set although a schedule was given.
        """
        if self._pass is not None:
            return self._pass.learning_rate
        state = self._live.state
        if callable(self._learning_rate):
            count = 0 if state is None else host_value(state["rate"]["count"])
            return self._with_assign(host_value(self._schedule_at(count)))
        if state is None:
            return self._with_assign(self._learning_rate)
        return self._with_assign(host_value(state["rate"]["learning_rate"]))

    def _with_assign(self, rate: Any) -> Any:
        """The learning rate with Keras' ``assign``."""
        return live_number(rate, lambda new: setattr(self, "learning_rate", new))

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        value = self._check_rate(value)
        if callable(value):
            self._learning_rate = value
            self._revision += 1
            return
        refuse_with_schedule(type(self).__name__, self._learning_rate)
        self._change(learning_rate=value)
        self._learning_rate = value

    @property
    def scale(self) -> Any:
        """Factor on the learning rate or schedule; a callback may lower it."""
        state = self._live.state
        return self._scale if state is None else host_value(state["rate"]["scale"])

    @scale.setter
    def scale(self, value: float) -> None:
        value = check_number(type(self).__name__, "scale", value)
        self._change(scale=value)
        self._scale = value

    @property
    def iterations(self) -> Any:
        """Number of updates so far, an int; ``iterations.assign(0)`` starts anew."""
        if self._pass is not None:
            return self._pass.count
        state = self._live.state
        count = 0 if state is None else host_value(state["rate"]["count"])
        return live_number(count, self._set_iterations)

    def _set_iterations(self, value: Any) -> None:
        state = self._require_run("iterations.assign")
        count = replace_leaf("optimizer", "iterations", state["rate"]["count"], value)
        self._live.state = {**state, "rate": {**state["rate"], "count": count}}

    def hyperparameters(self, opt_state: Mapping[str, Any]) -> dict[str, Any]:
        """What can change without a recompilation, as Python numbers.

        With a schedule, ``learning_rate`` is the schedule's value now.

        Example:
            >>> from exburn.optimizers import Adam
            >>> import numpy as np
            >>> optimizer = Adam(0.01)
            >>> state = optimizer.init({"w": np.ones(2, np.float32)})
            >>> state = optimizer.with_hyperparameters(state, learning_rate=0.5)
            >>> optimizer.hyperparameters(state)["learning_rate"]
            0.5
        """
        values = {name: host_value(opt_state["rate"][name]) for name in _SETTABLE}
        if callable(self._learning_rate):
            schedule = self._schedule_at(opt_state["rate"]["count"])
            values["learning_rate"] = host_value(schedule)
        return values

    def with_hyperparameters(
        self, opt_state: Mapping[str, Any], **values: Any
    ) -> dict[str, Any]:
        """A copy of the state with other hyperparameters; shapes and dtypes stay.

        Args:
            opt_state: The state.
            **values: ``learning_rate, scale, warmup_from, warmup_to, warmup_steps``;
                a number, or an array with one value for each of several models.

        Raises:
            UnknownNameError: There is no such hyperparameter.
            ArgumentError: A number can never work, or a schedule sets the rate.
        """
        op = f"{type(self).__name__}.with_hyperparameters"
        rate = dict(opt_state["rate"])
        for name, value in values.items():
            if name not in _SETTABLE:
                known = self.hyperparameters(opt_state)
                raise unknown_name("hyperparameter", name, known, op=op)
            if name == "learning_rate":
                refuse_with_schedule(type(self).__name__, self._learning_rate)
            rate[name] = replace_leaf(op, name, rate[name], value)
        return {**opt_state, "rate": rate}

    def get_hyperparameters(self) -> dict[str, Any]:
        """``hyperparameters`` of the run that the optimizer is bound to.

        Raises:
            NotBuiltError: There is no run yet.
        """
        return self.hyperparameters(self._require_run("get_hyperparameters"))

    def set_hyperparameters(self, **values: Any) -> None:
        """``with_hyperparameters`` on the run that the optimizer is bound to.

        Raises:
            NotBuiltError: There is no run yet.
        """
        self._require_run("set_hyperparameters")
        self._change(**values)

    def _require_run(self, op: str) -> Any:
        state = self._live.state
        if state is None:
            raise NotBuiltError(
                op,
                "the optimizer has no state yet",
                hint="Call it from a callback of fit, or after fit.",
            )
        return state

    def _check_rate(self, value: Any) -> Any:
        return check_learning_rate(type(self).__name__, value)

    # ------------------------------------------------------------------ lists
    @property
    def built(self) -> bool:
        """Whether it has a state: of ``build``, or of a model that it trains."""
        has_state = self._lists is not None or self._live.state is not None
        return has_state and self._pass is None

    def build(self, variables: Iterable[Any]) -> None:
        """Makes the state for a list of variables; a second call does nothing.

        The state of an optimizer that was given to ``compile`` is the model's.

        Args:
            variables: Objects with a value, or arrays. A ``path`` names a parameter.
        """
        eager.build(self, variables)

    def adopt(
        self, names: Sequence[str], treedef: Any, constraints: dict[str, Callable]
    ) -> None:
        """Tells ``stateless_apply`` how a trainer's lists map to its state.

        Args:
            names: Paths of the trained parameters, in the order of the lists.
            treedef: Structure of the state that the optimizer's list of arrays is of.
            constraints: Of the parameters that have one, by path.
        """
        op, before = type(self).__name__, self._lists
        self._lists = eager.ListLayout(op, list(names), treedef, constraints)
        if before is not None:
            self._lists.variables = before.variables
            self._lists.compiled = before.compiled

    @property
    def variables(self) -> list[OptimizerVariable]:
        """The state's arrays, each as a variable with ``value`` and ``assign``.

        Raises:
            NotBuiltError: There is no state yet.
        """
        return variables_of(self, eager.require_state(self, "variables"))

    def save_own_variables(self, store: dict[str, Any]) -> None:
        """Puts all of ``variables`` into a dict, as ``"0"``, ``"1"`` …

        Raises:
            NotBuiltError: There is no state yet.
        """
        for number, variable in enumerate(self.variables):
            store[str(number)] = np.asarray(variable)

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Takes up what ``save_own_variables`` stored.

        Raises:
            NotBuiltError: There is no state yet.
            ArgumentError: The number of variables differs.
            ShapeError: A value has another shape.
        """
        self.set_weights([store[str(number)] for number in range(len(store))])

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Sets all of ``variables``, from a list of values in their order.

        Raises:
            NotBuiltError: There is no state yet.
            ArgumentError: The list has another length.
            ShapeError: A value has another shape.
        """
        op = f"{type(self).__name__}.set_weights"
        eager.set_values(op, self.variables, weights)

    def state_of(self, optimizer_variables: Sequence[Any]) -> Any:
        """The state that a list of its values, or of ``variables``, is of.

        Raises:
            ArgumentError: The list has another length.
        """
        assert self._lists is not None  # of ``build`` or ``adopt``
        return self._lists.state_of(optimizer_variables)

    def stateless_apply(
        self, optimizer_variables: Any, grads: Any, trainable_variables: Any
    ) -> tuple[Any, Any]:
        """A pure update in Keras' order of arguments.

        Args:
            optimizer_variables: The state, or ``optimizer.variables`` as a list.
            grads: Tree of gradients, or a list of them.
            trainable_variables: Tree of parameters, or a list of their values.

        Returns:
            New parameters and new state, in the form that they came in.

        Raises:
            NotBuiltError: Lists are given before ``build``.
            ArgumentError: A list has another length than the one it was built with.
        """
        if isinstance(optimizer_variables, Mapping):
            return self.update(grads, optimizer_variables, trainable_variables)
        return eager.update_lists(self, optimizer_variables, grads, trainable_variables)

    def apply(
        self, grads: Sequence[Any], trainable_variables: Iterable[Any] | None = None
    ) -> None:
        """Updates variables in place.

        A variable whose gradient is ``None`` stays as it is, as do its slots; a warning
        names it.

        Args:
            grads: One gradient per variable.
            trainable_variables: Needed in the first call, unless ``build`` was called.

        Raises:
            NotBuiltError: There are no variables yet.
            ArgumentError: No variable has a gradient.
            DTypeError: A variable is a plain array, which nothing can be assigned to.

        Example:
            >>> import jax.numpy as jnp
            >>> from flax import nnx
            >>> from exburn.optimizers import SGD
            >>> weight = nnx.Param(jnp.array([1.0]))
            >>> SGD(0.5).apply([jnp.ones(1)], [weight])
            >>> float(weight[0])
            0.5
        """
        eager.apply(self, grads, trainable_variables)

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> int:
        """``apply`` for pairs of gradient and variable; returns the update count."""
        pairs = list(grads_and_vars)
        self.apply([grad for grad, _ in pairs], [variable for _, variable in pairs])
        return self.iterations

    def finalize_variable_values(self, var_list: Iterable[Any]) -> None:
        """Assigns the moving average to the variables, if the optimizer keeps one."""
        eager.assign_average(self, list(var_list))

    # ------------------------------------------------------------------ update_step
    def add_variable(
        self,
        shape: Iterable[int],
        initializer: Any = "zeros",
        dtype: Any = None,
        aggregation: Any = None,
        layout: Any = None,
        name: str | None = None,
    ) -> Handle:
        """A variable of the optimizer's own; for ``build`` of a class that has it.

        Args:
            shape: Its shape.
            initializer: A name, an initializer, or a function of shape and dtype.
            dtype: ``"float32"`` by default.
            aggregation, layout: Of Keras; not used.
            name: Its name.

        Raises:
            ArgumentError: It is called elsewhere.
        """
        return stepwise.add_slot(self, shape, initializer, dtype, name)

    def add_variable_from_reference(
        self, reference_variable: Any, name: str | None = None, initializer="zeros"
    ) -> Handle:
        """A variable of the shape and dtype of a parameter.

        Args:
            reference_variable: The parameter.
            name: Appended to the parameter's.
            initializer: As of ``add_variable``.
        """
        return stepwise.add_slot_like(self, reference_variable, name, initializer)

    def add_optimizer_variables(
        self, trainable_variables: Iterable[Any], name: Any, initializer: Any = "zeros"
    ) -> Any:
        """A variable for each parameter; a tuple of lists for several names.

        Args:
            trainable_variables: The parameters.
            name: A name, or a sequence of them.
            initializer: As of ``add_variable``; or one for each name.
        """
        return stepwise.add_slots(self, trainable_variables, name, initializer)

    def assign(self, variable: Any, value: Any) -> None:
        """``variable.assign(value)``."""
        variable.assign(value)

    def assign_add(self, variable: Any, value: Any) -> None:
        """``variable.assign_add(value)``."""
        variable.assign_add(value)

    def assign_sub(self, variable: Any, value: Any) -> None:
        """``variable.assign_sub(value)``."""
        variable.assign_sub(value)

    def _get_variable_index(self, variable: Any) -> int:
        return stepwise.index_of(self, variable)

    # ------------------------------------------------------------------ configuration
    def get_config(self) -> dict[str, Any]:
        """Constructor arguments as JSON-able values, with the current learning rate.

        Called as ``super().get_config()`` by a class of the user's, it returns those of
        the built-in class under it, too.
        """
        # A class of the user's may add those that are no attributes.
        extends = type(self).get_config is not Optimizer.get_config
        return describe(self, extends=extends)

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """The optimizer that ``get_config`` described, without its state.

        What the built-in class takes, and the user's class on it does not, is left out:
        the user's constructor sets it.

        Args:
            config: The configuration.
            custom_objects: Schedules by name, besides the registered ones.
        """
        return cls(**arguments_from(cls, config, custom_objects))

    def __repr__(self) -> str:
        rate = self.schedule or self._learning_rate
        return f"{type(self).__name__}(learning_rate={rate!r})"


# Of ``__init__``: ``__new__`` takes anything.
Optimizer.__signature__ = inspect.Signature(
    list(inspect.signature(Optimizer.__init__).parameters.values())[1:]
)
