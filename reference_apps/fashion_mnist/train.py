"""Train a small CNN to tell clothes apart, on all GPUs of a machine.

python train.py --epochs 5 --steps 60

The images are no photographs: `data.py` draws a stand-in for Fashion-MNIST, of its shape and with
as many classes, so that nothing has to be downloaded.
"""

import argparse

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from data import CLASSES, drawn


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60, help="per epoch")
    parser.add_argument("--batch-size", type=int, default=64, help="on each GPU")
    parser.add_argument("--width", type=int, default=64, help="filters of the first convolution")
    parser.add_argument("--examples", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def scaled(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.cast(image, tf.float32) / 255.0, tf.cast(label, tf.float32)


def dataset(count: int, seed: int, batch_size: int, training: bool) -> tf.data.Dataset:
    found = tf.data.Dataset.from_tensor_slices(drawn(count, seed)).map(scaled)
    if training:
        found = found.cache().shuffle(count).repeat()
    return found.batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def cnn(width: int) -> keras.Model:
    model = keras.Sequential([keras.Input((28, 28, 1)), layers.BatchNormalization()])
    for factor in (1, 2, 4):
        model.add(layers.Conv2D(factor * width, 5, padding="same", activation=tf.nn.elu))
        model.add(layers.MaxPooling2D())
        model.add(layers.Dropout(0.25))
    model.add(layers.Flatten())
    model.add(layers.Dense(4 * width, activation="elu"))
    model.add(layers.Dropout(0.5))
    model.add(layers.Dense(CLASSES, activation="softmax"))
    return model


def main() -> None:
    args = parse_args()
    keras.utils.set_random_seed(args.seed)
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    strategy = tf.distribute.MirroredStrategy()
    batch_size = args.batch_size * strategy.num_replicas_in_sync
    with strategy.scope():
        model = cnn(args.width)
        model.compile(
            optimizer=keras.optimizers.Adam(1e-3),
            loss="sparse_categorical_crossentropy",
            metrics=["sparse_categorical_accuracy"],
        )
    model.fit(
        dataset(args.examples, args.seed, batch_size, training=True),
        epochs=args.epochs,
        steps_per_epoch=args.steps,
        validation_data=dataset(args.examples // 8, args.seed + 1, batch_size, training=False),
        validation_freq=5,
        verbose=2,
    )


if __name__ == "__main__":
    main()
