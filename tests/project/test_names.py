"""The public names that a Keras 3 user reaches for: "must have" and "expected"."""

import importlib

import pytest

import exburn


def each(*names: str) -> list[str]:
    """``Conv{}D`` stands for its one-, two- and three-dimensional form."""
    return [
        name.format(n) if "{}" in name else name
        for name in names
        for n in ((1, 2, 3) if "{}" in name else (0,))
    ]


MUST = {
    "layers": each(
        *"Input InputLayer Dense EinsumDense Embedding Activation ReLU".split(),
        *["LeakyReLU"],
        *"PReLU ELU Softmax Conv{}D Conv{}DTranspose DepthwiseConv1D".split(),
        *"DepthwiseConv2D SeparableConv1D SeparableConv2D MaxPooling{}D".split(),
        *"AveragePooling{}D GlobalMaxPooling{}D GlobalAveragePooling{}D".split(),
        *"BatchNormalization LayerNormalization RMSNormalization".split(),
        *"GroupNormalization Dropout Flatten Reshape Permute RepeatVector".split(),
        *"ZeroPadding{}D Cropping{}D UpSampling{}D Add Subtract Multiply".split(),
        *"Average Maximum Minimum Concatenate Dot MultiHeadAttention".split(),
        *"GroupQueryAttention Attention AdditiveAttention SimpleRNN LSTM GRU".split(),
        *"Bidirectional TimeDistributed RNN SimpleRNNCell LSTMCell GRUCell".split(),
        *"StackedRNNCells Lambda Masking Identity Rescaling".split(),
        *"Normalization Resizing".split(),
    ),
    "losses": (
        "BinaryCrossentropy BinaryFocalCrossentropy CategoricalCrossentropy "
        "CategoricalFocalCrossentropy CategoricalGeneralizedCrossEntropy "
        "SparseCategoricalCrossentropy CTC Circle CosineSimilarity Dice Tversky "
        "Hinge SquaredHinge CategoricalHinge Huber LogCosh KLDivergence Poisson "
        "MeanSquaredError MeanAbsoluteError MeanAbsolutePercentageError "
        "MeanSquaredLogarithmicError Loss get serialize deserialize"
    ).split(),
    "metrics": (
        "Accuracy BinaryAccuracy CategoricalAccuracy SparseCategoricalAccuracy "
        "TopKCategoricalAccuracy SparseTopKCategoricalAccuracy AUC Precision Recall "
        "PrecisionAtRecall RecallAtPrecision SensitivityAtSpecificity "
        "SpecificityAtSensitivity TruePositives TrueNegatives FalsePositives "
        "FalseNegatives F1Score FBetaScore IoU BinaryIoU MeanIoU OneHotIoU "
        "OneHotMeanIoU MeanSquaredError RootMeanSquaredError MeanAbsoluteError "
        "MeanAbsolutePercentageError MeanSquaredLogarithmicError LogCoshError "
        "CosineSimilarity R2Score PearsonCorrelation ConcordanceCorrelation "
        "BinaryCrossentropy CategoricalCrossentropy SparseCategoricalCrossentropy "
        "KLDivergence Poisson Hinge SquaredHinge CategoricalHinge Mean Sum "
        "MeanMetricWrapper Metric get serialize deserialize"
    ).split(),
    "optimizers": (
        "SGD Adam AdamW Adamax Nadam Adagrad Adadelta Adafactor RMSprop Ftrl Lamb Lion "
        "Muon SAM SOAP Shampoo Sophia ScheduleFreeAdamW LossScaleOptimizer "
        "MultiOptimizer Optimizer schedules"
    ).split(),
    "optimizers.schedules": (
        "ExponentialDecay PiecewiseConstantDecay PolynomialDecay InverseTimeDecay "
        "CosineDecay CosineDecayRestarts LearningRateSchedule StepSchedule "
        "ExponentialSchedule CosineSchedule OneCycle WarmupStableDecay LinearWarmup"
    ).split(),
    "activations": (
        "celu elu exponential gelu gelu_tanh glu hard_shrink hard_sigmoid hard_silu "
        "hard_swish hard_tanh leaky_relu linear log_sigmoid log_softmax mish relu "
        "quick_gelu relu6 selu sigmoid silu swish soft_shrink softmax softplus "
        "softsign sparse_plus sparse_sigmoid sparsemax squared_relu squareplus tanh "
        "tanh_shrink threshold"
    ).split(),
    "initializers": (
        "Zeros Ones Constant Identity Orthogonal RandomNormal RandomUniform "
        "TruncatedNormal VarianceScaling GlorotNormal GlorotUniform HeNormal HeUniform "
        "LecunNormal LecunUniform"
    ).split(),
    "regularizers": "L1 L2 L1L2 OrthogonalRegularizer".split(),
    "constraints": "MaxNorm MinMaxNorm NonNeg UnitNorm".split(),
    "callbacks": (
        "Callback CallbackList History EarlyStopping ModelCheckpoint "
        "LearningRateScheduler ReduceLROnPlateau TerminateOnNaN CSVLogger "
        "LambdaCallback ProgbarLogger WarmUp"
    ).split(),
    "models": "Model Sequential clone_model".split(),
    "utils": (
        "to_categorical normalize pad_sequences split_dataset get_file plot_model "
        "timeseries_dataset_from_array image_dataset_from_directory "
        "text_dataset_from_directory set_random_seed Progbar PyDataset Sequence"
    ).split(),
    "random": (
        "SeedGenerator normal uniform categorical dropout gamma beta binomial randint "
        "shuffle truncated_normal"
    ).split(),
    "datasets": (
        "mnist fashion_mnist cifar10 cifar100 imdb reuters boston_housing "
        "california_housing digits iris wine breast_cancer diabetes"
    ).split(),
}

EXPECTED = {
    "layers": each(
        *"SpatialDropout{}D GaussianNoise GaussianDropout AlphaDropout".split(),
        *"ActivityRegularization UnitNormalization SpectralNormalization".split(),
        *"AdaptiveAveragePooling{}D AdaptiveMaxPooling{}D ReversibleEmbedding".split(),
        *"ConvLSTM{}D Wrapper CategoryEncoding Discretization Hashing".split(),
        *"HashedCrossing IntegerLookup StringLookup TextVectorization".split(),
        *"CenterCrop RandomFlip RandomRotation RandomZoom RandomTranslation".split(),
        *"RandomCrop RandomContrast RandomBrightness RandomHue".split(),
        *"RandomSaturation RandomShear RandomPerspective RandomErasing".split(),
        *"RandomInvert RandomGrayscale RandomGaussianBlur".split(),
        *"RandomColorJitter RandomColorDegeneration RandomPosterization".split(),
        *"RandomSharpness RandomElasticTransform AutoContrast Equalization".split(),
        *"Solarization MixUp CutMix Mosaic RandAugment AugMix Pipeline".split(),
    ),
}
LISTS = [("must", n, names) for n, names in MUST.items()]
LISTS += [("expected", n, names) for n, names in EXPECTED.items()]


@pytest.mark.parametrize(
    ("kind", "namespace", "names"), LISTS, ids=[f"{k}-{n}" for k, n, _ in LISTS]
)
def test_no_name_is_missing(kind, namespace, names):
    module = importlib.import_module(f"exburn.{namespace}")
    missing = [name for name in names if not hasattr(module, name)]
    assert not missing


def test_the_top_level_has_what_scripts_take_from_keras():
    names = (
        "Input InputSpec KerasTensor Layer Loss Metric Model Optimizer Initializer "
        "Regularizer Sequential Variable activations backend callbacks config "
        "constraints datasets initializers layers losses metrics mixed_precision "
        "models ops optimizers random regularizers saving tree utils"
    ).split()
    assert not [name for name in names if not hasattr(exburn, name)]
    assert not [name for name in exburn.__all__ if not hasattr(exburn, name)]
