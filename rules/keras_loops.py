"""Custom training loops: their steps on all cores of a TPU."""

import ast
import copy

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Delete,
    Edit,
    EditCall,
    Example,
    Insert,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
    argument,
)
from migrator.rule_api.keras import (
    REPLICAS,
    Applied,
    Loop,
    Making,
    Step,
    applied,
    divided,
    leaves_last_out,
    results,
    stays,
    strategy_name,
    unbuilt,
    whole_sizes,
)

LOOP = Rule(
    code="KER041",
    name="training-loop",
    summary="the step of a training loop runs on all cores, each with its part of a batch",
    why="""`strategy.run` calls the step on each core with its part of a batch from
`strategy.experimental_distribute_dataset`. Gradients are summed over the cores, and the results of
the step are combined. Variables are created before the first step, because `strategy.run` can't.

Batches have to be multiples of the number of cores; on several, the smaller last batch of an epoch
is dropped. Evaluation and its metrics stay on one device. A step without `tf.function` gets one, if
Python has nothing to run in each step. Without a TPU the results don't change.""",
    framework="tensorflow",
    references=("https://www.tensorflow.org/tutorials/distribute/custom_training",),
    examples=(
        Example(
            """
            import tensorflow as tf

            data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64)
            model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])
            optimizer = tf.keras.optimizers.SGD()
            mse = tf.keras.losses.MeanSquaredError()


            @tf.function
            def train_step(x, y):
                with tf.GradientTape() as tape:
                    loss = mse(y, model(x, training=True))
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables))
                return loss


            for epoch in range(5):
                for x, y in data:
                    loss = train_step(x, y)
                print(float(loss))
            """,
            except_on={
                "tf_tpu": """
            import os
            import tensorflow as tf

            try:
                tpu = tf.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME", "local"))
                tf.config.experimental_connect_to_cluster(tpu)
                tf.tpu.experimental.initialize_tpu_system(tpu)
                strategy = tf.distribute.TPUStrategy(tpu)
            except (ValueError, tf.errors.NotFoundError, tf.errors.InternalError) as error:
                tf.get_logger().warning("no TPU was found, so this runs on the CPU or GPU: %s", error)
                strategy = tf.distribute.get_strategy()

            data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64, drop_remainder=strategy.num_replicas_in_sync > 1)
            with strategy.scope():
                model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])
                optimizer = tf.keras.optimizers.SGD()
            mse = tf.keras.losses.MeanSquaredError()


            def train_step(x, y):
                with tf.GradientTape() as tape:
                    loss = mse(y, model(x, training=True))
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables))
                return loss


            @tf.function
            def distributed_train_step(x, y):
                loss = strategy.run(train_step, args=(x, y))
                return strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None)


            with strategy.scope():
                optimizer.build(model.trainable_variables)
            for epoch in range(5):
                for x, y in strategy.experimental_distribute_dataset(data):
                    loss = distributed_train_step(x, y)
                print(float(loss))
            """  # noqa: E501
            },
            script=True,
        ),
        Example(
            """
            import tensorflow as tf

            with tf.GradientTape() as tape:
                loss = tf.square(model(x) - y)
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, variables))
            """,
            script=True,
        ),
        Example(
            """
            import tensorflow as tf

            data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64, drop_remainder=True)
            for x, y in data:
                metric.update_state(y, model(x))
            """,
            script=True,
        ),
    ),
)


@LOOP.on("tensorflow", "step")
def divided_step(ctx: Context, found: Construct) -> Decision | None:
    if ctx.api.strategy is None:
        return Keep("part of what keeps the program on TensorFlow")
    if (held := stays(ctx)) is not None:
        return held
    step = next(s for s in divided(ctx.names) if s.function is found.node)
    name = f"distributed_{step.function.name}"
    if name in ctx.names.by_id or name in ctx.names.by_attribute:
        return Report(f"needs a function {name}, but that name is taken")
    if not Making(ctx.names, ctx.project).runs():
        return Report(
            "trains objects created in another file: create them in this script, in a "
            "strategy's scope"
        )
    strategy = strategy_name(ctx)
    edits: list[Edit] = [Delete(step.decorator)] if step.decorator is not None else []
    blanks = ["", ""] if step.function.col_offset == 0 else [""]
    caller = "\n".join(_caller(ctx, step, name, strategy))
    edits.append(Insert(ctx.names.tree, step.function, [*blanks, caller]))
    for size in whole_sizes(ctx.names, step):
        assert isinstance(size, ast.expr)  # any other is an obstacle
        spelled, _ = ctx.code.module("tensorflow")
        code = f"{{size}} // {spelled}.distribute.get_strategy().{REPLICAS}"
        edits.append(Replace(size, code, {"size": size}))
    made: set[ast.AST] = set()
    for loop in step.loops:
        called = loop.call.func
        if isinstance(called, ast.Attribute):
            edits.append(Replace(called, f"{{owner}}.{name}", {"owner": called.value}))
        else:
            edits.append(Replace(called, name))
        if loop.data not in made:
            made.add(loop.data)
            edits.append(_distributed(ctx, loop, strategy))
        outermost = loop.outermost(ctx.names)
        if outermost not in made:
            made.add(outermost)
            block = "\n".join([f"with {strategy}.scope():", *_variables(ctx, step, loop)])
            edits.append(Insert(ctx.names.tree, outermost, [block], before=True))
        for call in loop.batched:
            if call not in made and not leaves_last_out(call):
                made.add(call)
                edits.append(EditCall(call, put={"drop_remainder": f"{strategy}.{REPLICAS} > 1"}))
    note = "each core gets a part of the batch; on several cores, a smaller last batch is dropped"
    if step.decorator is None:
        note += "; the step is now a tf.function"
    return Rewrite(edits, ctx.code.module("tensorflow")[1], note=note)


def _distributed(ctx: Context, loop: Loop, strategy: str) -> Edit:
    """The loop's iterable, with divided batches; `enumerate` is replaced by a counter."""
    template = f"{strategy}.experimental_distribute_dataset({{data}})"
    if loop.counted is None:
        return Replace(loop.data, template, {"data": loop.data})
    spelled, _ = ctx.code.module("tensorflow")
    start = argument(loop.counted, 0, "start")
    first = "" if start is None else "{start}"
    holes = {"data": loop.data} | ({} if start is None else {"start": start})
    return Replace(loop.counted, f"zip({spelled}.data.Dataset.counter({first}), {template})", holes)


def _caller(ctx: Context, step: Step, name: str, strategy: str) -> list[str]:
    """The function that runs a step on all replicas."""
    spelled, _ = ctx.code.module("tensorflow")
    shared, own = step.shared(), step.function.name
    taken = [step.own, *step.parameters] if step.own else step.parameters
    lines = [f"@{spelled}.function", f"def {name}({', '.join(taken)}):"]
    own = f"{step.own}.{own}" if step.own else own
    if shared != step.parameters:
        lines += [f"    def on_replica({', '.join(shared)}):",
                  f"        return {own}({', '.join(step.parameters)})", ""]  # fmt: skip
        own = "on_replica"
    given = ", ".join(shared) + ("," if len(shared) == 1 else "")
    run = f"{strategy}.run({own}, args=({given}))"
    joined = results(ctx.names, step)
    assert isinstance(joined, list)
    if not joined:
        return [*lines, f"    {run}"]
    returned = step.function.body[-1]
    assert isinstance(returned, ast.Return)
    values = returned.value.elts if isinstance(returned.value, ast.Tuple) else [returned.value]
    names = [v.id if isinstance(v, ast.Name) else f"result_{n}" for n, v in enumerate(values, 1)]
    reduced = [
        f"{strategy}.reduce({spelled}.distribute.ReduceOp.{how}, {value}, axis=None)"
        for how, value in zip(joined, names, strict=True)
    ]
    return [*lines, f"    {', '.join(names)} = {run}", f"    return {', '.join(reduced)}"]


def _variables(ctx: Context, step: Step, loop: Loop) -> list[str]:
    """Lines that create all variables of the models and optimizers that a step trains."""
    given, lines = step.given(loop), []
    spelled, _ = ctx.code.module("tensorflow")
    for model, call in unbuilt(ctx.names, step, loop):
        assert call is not None  # else it is an obstacle
        assert isinstance(call.args[0], ast.Name)
        called = _outside(model, given)
        part = given[call.args[0].id]
        assert isinstance(part, ast.Name)
        spec = f"{ast.unparse(loop.data)}.element_spec{loop.parts[part.id]}"
        rest = "".join(f", {ast.unparse(k)}" for k in call.keywords)
        shown = f"{spelled}.keras.Input(batch_shape={spec}.shape, dtype={spec}.dtype)"
        lines.append(f"    {called}({shown}{rest})")
    for each in applied(ctx.names, step.function):
        assert isinstance(each, Applied)
        optimizer, variables = (_outside(part, given) for part in (each.optimizer, each.variables))
        lines.append(f"    {optimizer}.build({variables})")
    return list(dict.fromkeys(lines))


def _outside(node: ast.expr, given: dict[str, ast.expr]) -> str:
    """An expression of a step, written in the names of its caller."""

    class Given(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            return given.get(name.id, name)

    return ast.unparse(Given().visit(copy.deepcopy(node)))
