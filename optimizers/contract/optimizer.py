"""The optimizer contract: pure functions of arrays; the learning rate is state."""

from __future__ import annotations

import abc
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self, Unpack

import jax
import jax.numpy as jnp
import numpy as np
import optax

from exburn.core import registry
from exburn.core.batch_independence import our_class
from exburn.core.checks import (
    check_count,
    check_number,
    check_optional,
    check_rate,
    check_text,
)
from exburn.core.docstrings import complete_docstring
from exburn.core.methods import overridable, with_methods
from exburn.errors import ArgumentError, SignatureError, unknown_argument
from exburn.errors.boundary import api_boundary, guard_methods
from exburn.module.building import spec_like
from exburn.optimizers.contract import (
    eager,
    eight_bits,
    exclusions,
    gradients,
    live,
    newcomers,
    stepwise,
)
from exburn.optimizers.contract import rate as rates
from exburn.optimizers.contract import update as updates
from exburn.optimizers.contract.live import (
    LiveState,
    check_learning_rate,
    refuse_with_schedule,
)
from exburn.optimizers.contract.options import NoOptions
from exburn.optimizers.contract.rate import (
    current_rate,
    host_value,
    schedule_count,
)
from exburn.optimizers.contract.trees import same_shapes
from exburn.optimizers.contract.update import make_state, real_gradients, step
from exburn.optimizers.contract.variable import (
    OptimizerVariable,
    live_number,
    variables_of,
)

_OLD_NAMES = {"lr": "learning_rate", "decay": "a schedule as learning_rate"}


@guard_methods
@with_methods
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
        state_bits: 32, or 8: slots of parameters of 4,096 entries or more take a byte
            an entry, as in bitsandbytes. For the optimizers that name such slots in
            ``eight_bit_slots``: Adam, AdamW, Lamb, Lion, RMSprop and SGD. Averages and
            accumulated gradients stay in float32.

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

    #: Whether ``update`` takes the loss as a function, ``value_fn``.
    evaluates_loss = False
    #: Whether it finds the length of its steps by itself, along that loss.
    searches = False
    #: Whether parameters in 16-bit floats are updated in float32.
    widens = True
    #: Slots that may be in 8 bits, by their names: whether they have signs. They must
    #: begin as zeros, and a class whose rule is its own names its own.
    eight_bit_slots: Mapping[str, bool] = {}

    __signature__: inspect.Signature
    #: Whether the constructor's last argument is **options, which ends up here.
    _takes_options = True
    _argument_names: frozenset[str]
    #: The learning rate that holds again after a fit with a schedule of its own.
    _number: float = 0.0
    _undecayed: Sequence[Any] = ()  # given to exclude_from_weight_decay
    _lists: Any = None  # the ``ListLayout`` of what ``build`` was given
    _pass: Any = None  # the ``RulePass`` of an ``update_step`` that is under way
    _by_tokens = False  # compiled with accumulate="tokens"
    _epoch_lengths: tuple[int | None, int | None] | None = None  # of ``set_epochs``

    # Its methods are functions of the files that they belong to.
    build, adopt, state_of = eager.build, eager.adopt, eager.state_of
    apply, apply_gradients = eager.apply, eager.apply_gradients
    stateless_apply = eager.stateless_apply
    finalize_variable_values = eager.finalize_variable_values
    save_own_variables = eager.save_own_variables
    load_own_variables = eager.load_own_variables
    set_weights = eager.set_weights

    add_variable = stepwise.add_variable
    add_variable_from_reference = stepwise.add_variable_from_reference
    add_optimizer_variables = stepwise.add_optimizer_variables
    assign, assign_add = stepwise.assign, stepwise.assign_add
    assign_sub, _get_variable_index = stepwise.assign_sub, stepwise.get_variable_index

    bind, settings, set_epochs = live.bind, live.settings, live.set_epochs
    hyperparameters = live.hyperparameters
    with_hyperparameters = live.with_hyperparameters
    get_hyperparameters = live.get_hyperparameters
    set_hyperparameters = live.set_hyperparameters
    accumulate_batch = updates.accumulate_batch
    update_accumulated = updates.update_accumulated
    weighs_batches = property(updates.weighs_batches)
    _change, _set_iterations = live.change, live.set_iterations

    restart_schedule, schedule_start = rates.restart_schedule, rates.schedule_start
    with_schedule_start = rates.with_schedule_start
    restart_warm_up, end_warm_up = rates.restart_warm_up, rates.end_warm_up
    as_initial, as_stored = newcomers.as_initial, newcomers.as_stored
    ema_params, final_params = gradients.ema_params, gradients.final_params
    exclude_from_weight_decay = exclusions.exclude_from_weight_decay

    @api_boundary
    def __new__(cls, *args: Any, **kwargs: Any):
        if not cls._takes_options:
            _refuse_unknown(cls, set(kwargs) - set(cls.__signature__.parameters))
        self = super().__new__(cls)
        object.__setattr__(self, "_argument_names", frozenset(kwargs))
        return self

    def __init_subclass__(cls, **kwargs):
        """Shows the common options in the signature of a class that takes **options."""
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("exburn."):
            guard_methods(cls)
        if hasattr(cls, "update_step"):
            stepwise.adopt_rule(cls)
        own = list(inspect.signature(cls.__init__).parameters.values())[1:]
        cls._takes_options = bool(own) and own[-1].kind is own[-1].VAR_KEYWORD
        if cls._takes_options:
            names = {parameter.name for parameter in own}
            common = inspect.signature(Optimizer.__init__).parameters.values()
            own[-1:] = [
                parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
                for parameter in list(common)[1:-1]
                if parameter.name not in names
            ]
        cls.__signature__ = inspect.Signature(own)
        if cls.__module__.startswith("exburn."):
            complete_docstring(cls)
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
        state_bits: int = 32,
        **unknown: Unpack[NoOptions],
    ):
        op = type(self).__name__
        _refuse_unknown(type(self), unknown)
        self._live = LiveState()
        self._scale, self._revision = 1.0, 0
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
        clipping = {k: getattr(self, k) for k in clips if getattr(self, k) is not None}
        # ExBurn clips by the global norm and then by value.
        if len(clipping) > 1 and set(clipping) != {"clipvalue", "global_clipnorm"}:
            raise ArgumentError(op, "only one kind of clipping can be used", clipping)
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
        self.state_bits = eight_bits.check_bits(self, state_bits)

    def __setattr__(self, name: str, value: Any) -> None:
        # Nothing would read it, and the training would go on as before.
        if name not in vars(self) and (meant := _meant_by(type(self), name)):
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

    def fits(self, opt_state: Mapping[str, Any], params: Any) -> bool:
        """Tells whether a state is for these parameters and the options as they are.

        Args:
            opt_state: The state.
            params: Parameters, or specs of them, by path.
        """
        specs = self.init(jax.tree.map(spec_like, params))
        shapes = jax.tree.map(np.shape, self.as_initial(opt_state))
        return shapes == jax.tree.map(np.shape, specs)

    def refit(
        self, opt_state: Mapping[str, Any], fresh: Mapping[str, Any], params: Any
    ) -> dict[str, Any]:
        """A state for parameters that keep the slots they have, by their paths.

        Args:
            opt_state: A state for the same parameters, or for others.
            fresh: What ``init`` returns for them.
            params: Those that are trained from now on, by path.

        Example:
            >>> from exburn.optimizers import Adam
            >>> optimizer, body = Adam(), {"body": np.ones(2, np.float32)}
            >>> state = optimizer.init(body)
            >>> both = body | {"head": np.ones(3, np.float32)}
            >>> state = optimizer.refit(state, optimizer.init(both), both)
            >>> sorted(state["inner"])
            ['body', 'head']
        """
        old = eight_bits.convert(self, opt_state)
        return newcomers.refit(self, old, fresh, params)

    def is_setting(self, path: tuple) -> bool:
        """Tells whether an array of the rule's state is a number that one sets."""
        return False

    def update(
        self,
        grads: Any,
        opt_state: Mapping[str, Any],
        params: Any,
        *,
        weight: Any = None,
    ) -> tuple[Any, dict[str, Any]]:
        """One step from gradients: ``(new_params, new_opt_state)``.

        With ``gradient_accumulation_steps`` this is one batch of a group: it updates
        if it is the group's last. A loop over whole groups calls ``accumulate_batch``
        for each batch and ``update_accumulated`` once, and asks nothing.

        Args:
            grads: Tree like ``params``.
            opt_state: What ``init`` or the last ``update`` returned.
            params: Tree of arrays.
            weight: What the batch counts for in the mean of its group's gradients,
                where ``weighs_batches``; 1 by default.

        Raises:
            ShapeError: Gradients, parameters and state do not belong together.
        """
        same_shapes(f"{type(self).__name__}.update", grads, params)
        if "accumulated" not in opt_state:
            return self._step(real_gradients(self, grads), dict(opt_state), params)
        state = self.accumulate_batch(grads, opt_state, weight)
        return jax.lax.cond(
            state["accumulated"]["batches"] >= self.accumulate,
            lambda: self.update_accumulated(state, params),
            lambda: (params, state),
        )

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

    # ------------------------------------------------------------------ live state
    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copies: with the learning rate, without the live state."""
        state = vars(self) | {"_live": LiveState()}
        if self._live.state is not None:
            state["_scale"] = self.scale
            if not callable(self._learning_rate):
                state["_learning_rate"] = self.learning_rate
        return state

    @property
    def revision(self) -> int:
        """Grows whenever something changed that a compiled update has built in."""
        return self._revision

    @property
    def accumulate(self) -> int:
        """Number of batches whose mean gradient makes one update."""
        return self.gradient_accumulation_steps or 1

    @property
    def schedule(self) -> Callable[[Any], Any] | None:
        """The learning-rate schedule, or None."""
        return self._learning_rate if callable(self._learning_rate) else None

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
            count = 0 if state is None else host_value(schedule_count(state["rate"]))
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

    def _check_rate(self, value: Any) -> Any:
        return check_learning_rate(type(self).__name__, value)

    # ------------------------------------------------------------------ lists
    @property
    def built(self) -> bool:
        """Whether there is a state: of ``build``, or of a model that is trained."""
        has_state = self._lists is not None or self._live.state is not None
        return has_state and self._pass is None

    @property
    def variables(self) -> list[OptimizerVariable]:
        """The state's arrays, each as a variable with ``value`` and ``assign``.

        Raises:
            NotBuiltError: There is no state yet.
        """
        return variables_of(self, eager.require_state(self, "variables"))

    def get_config(self) -> dict[str, Any]:
        """Constructor arguments as JSON-able values, with the current learning rate.

        Called as ``super().get_config()`` by a class of the user's, it returns those of
        the built-in class under it, too.
        """
        # A class of the user's may add those that are no attributes.
        extends = type(self).get_config is not Optimizer.get_config
        config = {}
        own = inspect.signature(type(self)).parameters
        # A class that takes **options may have been given more than it names.
        further = inspect.signature(our_class(type(self))).parameters
        common = further if extends else further.keys() & self._argument_names
        for name in dict.fromkeys([*own, *common]):
            if name == "learning_rate" and self.schedule is not None:
                config[name] = registry.serialize(self.schedule)
                continue
            if not hasattr(self, name):
                if extends:
                    continue
                raise ArgumentError(
                    f"{type(self).__name__}.get_config",
                    f"the argument {name!r} is no attribute of the optimizer",
                    hint=f"Keep it as self.{name}, or override get_config.",
                )
            value = getattr(self, name)
            config[name] = registry.serialize(value)
        return config

    @classmethod
    @overridable
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
        takes = inspect.signature(cls.__init__).parameters
        anything = any(p.kind is p.VAR_KEYWORD for p in takes.values())
        left_out = (
            set() if anything else {*inspect.signature(our_class(cls)).parameters}
        )
        arguments = {k: v for k, v in config.items() if k in takes or k not in left_out}
        with registry.custom_objects(custom_objects):
            return cls(**{k: registry.deserialize(v) for k, v in arguments.items()})

    def __repr__(self) -> str:
        rate = self.schedule or self._learning_rate
        return f"{type(self).__name__}(learning_rate={rate!r})"


# Of ``__init__``: ``__new__`` takes anything.
Optimizer.__signature__ = inspect.Signature(
    list(inspect.signature(Optimizer.__init__).parameters.values())[1:]
)


def _refuse_unknown(cls: type, arguments: Iterable[str]) -> None:
    """Raises for the arguments that a constructor does not have."""
    for argument in sorted(arguments):
        if argument in _OLD_NAMES:
            raise SignatureError(
                cls.__name__,
                f"there is no argument {argument!r}",
                hint=f"Use {_OLD_NAMES[argument]}.",
            )
    if unknown := sorted(arguments):
        parameters = inspect.signature(cls).parameters
        raise unknown_argument(cls.__name__, unknown, parameters)


def _meant_by(kind: type, name: str) -> str | None:
    """The hyperparameter that a name without meaning stands for: ``lr``, ``beta1``."""
    parameters = inspect.signature(kind).parameters
    if hasattr(kind, name) or name in parameters:
        return None
    if name in _OLD_NAMES:
        return _OLD_NAMES[name]
    plain = {parameter.replace("_", ""): parameter for parameter in parameters}
    return plain.get(name.replace("_", "").lower()) if name[0] != "_" else None
