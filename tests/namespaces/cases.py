"""Arguments for every op: what is compared with Keras, and tried on symbols."""

import numpy as np

_rng = np.random.default_rng(0)


def floats(*shape, low=0.1, high=0.9):
    return _rng.uniform(low, high, shape).astype("float32")


def ints(*shape, low=0, high=5):
    return _rng.integers(low, high, shape).astype("int32")


X, Y = floats(3, 4), floats(3, 4)
S = floats(3, 4, low=-2, high=2)
N = np.array([[1.0, np.nan, 3.0, 2.0], [4.0, 0.5, np.inf, np.nan]], "float32")
K, J = ints(3, 4), ints(3, 4, low=1)
B, C = X > 0.5, Y > 0.5
V, W = floats(4), floats(4)
Z = X + 1j * Y
I8 = np.full((3, 5), 100, "int8")  # whose products are no int8
M = floats(2, 3, 3) + 3 * np.eye(3, dtype="float32")  # well conditioned
P = M @ M.transpose(0, 2, 1)
IDS = np.array([0, 0, 2], "int32")
LENGTHS = np.array([8, 6], "int32")
PLACES = np.array([[0, 1], [2, 0]], "int32")
IMAGES = floats(2, 6, 8, 3)
VOLUMES = floats(2, 4, 5, 6, 2)
SEQUENCE = floats(2, 9, 3)


def case(*args, **kwargs):
    return args, kwargs


def axes(x=S):
    return [case(x), case(x, axis=1, keepdims=True), case(x, (0, 1))]


def axis(x=S):
    return [case(x), case(x, axis=1, keepdims=True), case(x, 0)]


UNARY = (
    "abs absolute angle arccos arcsin arcsinh arctan arctanh cbrt ceil conj conjugate"
    " copy cos cosh deg2rad erf erfc erfinv exp exp2 expm1 fabs floor i0 imag isfinite"
    " isinf isnan isneginf isposinf isreal log log10 log1p log2 log_sigmoid negative"
    " rad2deg ravel real reciprocal round rsqrt sign signbit sin sinc sinh sqrt square"
    " stop_gradient tan tanh trunc ndim size shape dtype flipud fliplr hard_sigmoid"
    " hard_silu hard_swish hard_tanh relu relu6 selu sigmoid silu softplus softsign"
    " sparse_plus sparse_sigmoid squareplus swish tanh_shrink is_tensor"
    " convert_to_tensor convert_to_numpy array view"
).split()
BINARY = (
    "add arctan2 divide divide_no_nan equal floor_divide fmax fmin fmod greater"
    " greater_equal heaviside hypot isclose less less_equal logaddexp logaddexp2"
    " maximum minimum mod multiply nextafter not_equal power subtract true_divide"
    " allclose append"
).split()
BITS = "bitwise_and bitwise_or bitwise_xor left_shift right_shift".split()
SHIFTS = "bitwise_left_shift bitwise_right_shift gcd lcm".split()
LOGIC = "logical_and logical_or logical_xor".split()
REDUCE = (
    "amax amin logsumexp max mean median min nanmax nanmean nanmedian nanmin nanprod"
    " nanstd nansum nanvar prod ptp std sum var"
).split()
SHRINKS = "celu elu glu hard_shrink leaky_relu log_softmax soft_shrink softmax".split()

CASES = {
    **{name: [case(np.concatenate([X, S]))] for name in UNARY},
    **{name: [case(X, Y), case(S, 0.5), case(J, K)] for name in BINARY},
    **{name: [case(K, J)] for name in BITS + SHIFTS},
    **{name: [case(B, C), case(K, X)] for name in LOGIC},
    **{name: axes() for name in REDUCE},
    **{name: [case(S)] for name in SHRINKS},
    "all": axes(B),
    "any": axes(B),
    "argmax": axis(),
    "argmin": axis(),
    "nanargmax": axis(N[:, [0, 2]]),
    "nanargmin": axis(N),
    "arccosh": [case(X + 1)],
    "bitwise_invert": [case(K)],
    "bitwise_not": [case(K)],
    "logical_not": [case(B), case(K)],
    "nan_to_num": [case(N), case(N, nan=7.0, posinf=1.0)],
    "ldexp": [case(X, K)],
    "clip": [case(S, -1, 1), case(K, 1, 3)],
    "where": [case(B, X, Y), case(B, 1.0, X)],
    "select": [case([B, C], [X, Y], 0.0)],
    # reductions
    "argpartition": [case(V, 2), case(V[:, None], 2, axis=None)],
    "argsort": [case(S), case(S, 0)],
    "sort": [case(S), case(S, 0)],
    "average": [case(X), case(X, 1, weights=W), case(X, axis=0, weights=X[:, 0])],
    "bincount": [case(ints(9)), case(ints(9), floats(9), 8), case(K, None, 7)],
    "count_nonzero": [case(K), case(K, axis=1)],
    "cumprod": [case(X), case(X, 1)],
    "cumsum": [case(X), case(K, 1, dtype="float32")],
    "nancumprod": [case(N), case(N, 1)],
    "nancumsum": [case(N), case(N, 1)],
    "diff": [case(X), case(X, 2, 0)],
    "digitize": [case(X, np.array([0.2, 0.5, 0.7], "float32"))],
    "histogram": [case(V), case(V, bins=4, range=(0.0, 1.0))],
    "isin": [case(K, [1, 2]), case(K, J[0], invert=True)],
    "percentile": [case(X, 30), case(X, [10, 90], axis=1), case(X, 40, method="lower")],
    "quantile": [case(X, 0.3), case(X, [0.1, 0.9], axis=1, keepdims=True)],
    "nanpercentile": [case(N, 30, axis=1)],
    "nanquantile": [case(N, 0.3, axis=1)],
    "searchsorted": [case(np.sort(V), W), case(np.sort(V), W, side="right")],
    "trapezoid": [case(X), case(X, Y, axis=0), case(X, dx=2.0)],
    "unique": [case(K), case(K, return_counts=True, return_inverse=True)],
    "nonzero": [case(K)],
    "top_k": [case(X, 2)],
    "in_top_k": [
        case(ints(3, high=4), X, 2),
        case(np.array([0, 1]), np.array([[1, 1.0], [0, 1]]), 1),
    ],
    "segment_max": [case(X, IDS, 3)],
    "segment_min": [case(X, IDS, 3)],
    "segment_prod": [case(X, IDS, 3)],
    "segment_sum": [case(X, IDS, 3)],
    "cdist": [case(X, Y), case(IMAGES[0], IMAGES[1])],
    # shapes
    "array_split": [case(X, 3, axis=1)],
    "broadcast_to": [case(V, (3, 4))],
    "concatenate": [case([X, Y]), case([X, K], axis=-1)],
    "diag": [case(V), case(X[:, :3], k=1)],
    "diagflat": [case(V, 1)],
    "diagonal": [case(M, 1, 1, 2)],
    "dsplit": [case(IMAGES, 2)],
    "dstack": [case([X, Y])],
    "expand_dims": [case(X, 1), case(X, (0, -1))],
    "flip": [case(X), case(X, 1)],
    "get_item": [case(X, (slice(None), 1)), case(X, 0)],
    "hsplit": [case(X, 2)],
    "hstack": [case([X, Y])],
    "moveaxis": [case(IMAGES, 1, -1), case(IMAGES, [0, 1], [1, 0])],
    "pad": [
        case(X, ((0, 1), (2, 0))),
        case(X, 1, "reflect"),
        case(X, 1, "constant", 2),
    ],
    "repeat": [case(X, 2), case(X, 2, axis=1)],
    "reshape": [case(X, (2, 6)), case(X, (-1, 2)), case(X, -1)],
    "roll": [case(X, 1), case(X, 2, 1)],
    "rot90": [case(X), case(IMAGES, 2, (1, 2))],
    "split": [case(X, 2, 1), case(X, [1, 3], axis=1)],
    "squeeze": [case(X[:, None]), case(X[:, None], 1)],
    "stack": [case([X, Y]), case([X, Y], axis=-1), case(X)],
    "swapaxes": [case(IMAGES, 1, 2)],
    "take": [case(X, [0, 2]), case(X, K[:, 0] % 3, axis=1), case(X, 1, 0)],
    "take_along_axis": [case(X, K % 3, 0), case(X, K % 4, axis=-1)],
    "tile": [case(X, 2), case(X, (2, 1, 2))],
    "trace": [case(M, axis1=1, axis2=2)],
    "transpose": [case(X), case(IMAGES, (0, 3, 1, 2))],
    "tril": [case(X), case(M, k=-1)],
    "triu": [case(X), case(M, k=1)],
    "unravel_index": [case(ints(3), (2, 3))],
    "unstack": [case(X), case(X, axis=1), case(X, num=3)],
    "vsplit": [case(X, 3)],
    "vstack": [case([X, Y])],
    "vander": [case(V), case(V, 3, True)],
    "meshgrid": [case(V, W[:2]), case(V, W[:2], indexing="ij")],
    # creation
    "arange": [case(5), case(1, 7, 2), case(0, 1, 0.25), case(3, dtype="float32")],
    "bartlett": [case(7)],
    "blackman": [case(7)],
    "hamming": [case(7)],
    "hanning": [case(7)],
    "kaiser": [case(7, 8.0)],
    "empty": [case((2, 3), "int32")],
    "empty_like": [case(X, "int32")],
    "eye": [case(3), case(3, 4, 1, "int32")],
    "full": [case((2, 3), 7), case((2,), 1.5, "float16")],
    "full_like": [case(X, 2), case(X, 2, "int32")],
    "geomspace": [case(1.0, 8.0, 4)],
    "identity": [case(3)],
    "linspace": [case(0, 1, 5), case(V, W + 1, 4, axis=1), case(0, 3, 4, False)],
    "logspace": [case(0, 2, 5), case(0.0, 1.0, 4, base=2)],
    "ones": [case((2, 3)), case(4, "bool")],
    "ones_like": [case(X), case(X, "int32")],
    "tri": [case(3), case(3, 4, -1, "int32")],
    "zeros": [case((2, 3)), case((), "int32")],
    "zeros_like": [case(X), case(X, "bool")],
    # products
    "corrcoef": [case(X)],
    "correlate": [case(V, W), case(V, W[:2], "full")],
    "cross": [case(X[:, :3], Y[:, :3])],
    "dot": [case(X, Y.T), case(V, W)],
    "einsum": [
        case("ij,kj->ik", X, Y),
        case("bij,bjk->bik", M, M),
        case("ij,kj->ik", I8, I8),
    ],
    "inner": [case(V, W), case(X, Y)],
    "kron": [case(X, Y[:2])],
    "matmul": [case(X, Y.T), case(M, P), case(K, J.T), case(I8, I8.T), case(I8, I8[0])],
    "outer": [case(V, W)],
    "tensordot": [case(X, Y, [[0], [0]]), case(X, Y.T, 1)],
    "vdot": [case(V, W)],
    # linalg
    "cholesky": [case(P), case(P, upper=True)],
    "cholesky_inverse": [case(np.linalg.cholesky(P[0]))],
    "det": [case(M)],
    "eigh": [case(P[0])],
    "inv": [case(M)],
    "logdet": [case(P)],
    "lstsq": [case(X, V[:3]), case(X.T, Y.T)],
    "lu_factor": [case(M[0]), case(M), case(K[:, :3])],
    "matrix_rank": [case(M), case(np.ones((3, 3), "float32"))],
    "norm": [case(X), case(M, "fro", (1, 2)), case(X, 1, 1, True), case(K)],
    "pinv": [case(X)],
    "qr": [case(X), case(X, "complete")],
    "slogdet": [case(M)],
    "solve": [case(M, P), case(M[0], V[:3])],
    "solve_triangular": [case(np.tril(M), P, lower=True), case(np.triu(M[0]), V[:3])],
    "svd": [case(X, compute_uv=False), case(X, full_matrices=False)],
    # core
    "cast": [case(X, "int32"), case(K, "float16"), case(X, "bool")],
    "saturate_cast": [
        case(np.array([-3.7, 2.5, 300.0, 1e20], "float32"), "uint8"),
        case(np.array([-3.7, 1e20, -1e20], "float32"), "int32"),
        case(np.array([-3, 300], "int32"), "int8"),
        case(np.array([-3, 300], "int32"), "float16"),
        case(np.array([0, 300], "uint16"), "int8"),
        case(np.array([1e6, -1e6], "float32"), "float16"),
        case(B, "float32"),
    ],
    "slice": [case(X, (1, 2), (2, 2)), case(X, (1, 2), (-1, -1))],
    "slice_update": [case(X, (1, 2), Y[:2, :2])],
    "scatter": [case(PLACES, V[:2], (3, 2)), case(PLACES[:, :1], X[:2], (3, 4))],
    "scatter_update": [
        case(X, [[0, 1], [2, 0]], [5.0, 6.0]),
        case(X, [[0], [0]], Y[:2], "add"),
        case(X, [[0, 0], [0, 0]], [5.0, 6.0], "max"),
        case(X, [[0, 0], [0, 0]], [5.0, 6.0], "min"),
        case(X, [[0, 0], [0, 0]], [5.0, 6.0], "mul"),
    ],
    # Fourier
    "fft": [case((X, Y))],
    "fft2": [case((X, Y))],
    "ifft2": [case((X, Y))],
    "rfft": [case(X), case(X, 6)],
    "irfft": [case((X, Y)), case((X, Y), 5)],
    "extract_sequences": [case(SEQUENCE, 2, 1), case(floats(2, 20), 5, 3)],
    "stft": [
        case(floats(2, 40), 8, 4, 8),
        case(floats(2, 40), 6, 3, 8, window="hamming", center=False),
    ],
    "istft": [
        case((floats(2, 11, 5), floats(2, 11, 5)), 8, 4, 8),
        case((floats(11, 5), floats(11, 5)), 6, 3, 8, length=30),
        case((floats(11, 5), floats(11, 5)), 8, 2, 8, center=False, window="hamming"),
    ],
    "polar": [case(X, Y)],
    "view_as_complex": [case(floats(3, 2)), case(K[:, :2])],
    "view_as_real": [case(Z)],
    # networks
    "gelu": [case(S), case(S, False)],
    "threshold": [case(S, 0.5, 0.0)],
    "one_hot": [
        case(K, 5),
        case(K, 4, axis=1, dtype="int32"),
        case(np.array([1, -1]), 3),
    ],
    "multi_hot": [case(K, 5), case(np.array([0, 2]), 4), case(K, 6, dtype="int32")],
    "binary_crossentropy": [case(B.astype("float32"), X), case(Y, S, True)],
    "categorical_crossentropy": [
        case(Y, X),
        case(Y, S, from_logits=True),
        case(Y, X, axis=0),
    ],
    "sparse_categorical_crossentropy": [
        case(K[:, 0] % 4, X),
        case(K[:, :1] % 4, S, from_logits=True),
    ],
    "ctc_loss": [
        case(ints(2, 3, low=1), floats(2, 8, 5), LENGTHS - 5, LENGTHS),
        case(ints(2, 3, high=4), floats(2, 8, 5), LENGTHS - 5, LENGTHS, mask_index=4),
    ],
    "ctc_decode": [
        case(floats(2, 8, 4, low=-3, high=3), LENGTHS),
        case(floats(2, 8, 4, low=-3, high=3), LENGTHS - 1, merge_repeated=False),
        case(
            floats(2, 4, 3, low=-3, high=3),
            LENGTHS - 4,
            "beam_search",
            60,
            3,
            mask_index=1,
        ),
    ],
    "dot_product_attention": [
        case(floats(2, 5, 4, 8), floats(2, 6, 4, 8), floats(2, 6, 4, 8)),
        case(
            floats(2, 5, 4, 8),
            floats(2, 5, 2, 8),
            floats(2, 5, 2, 8),
            is_causal=True,
            scale=0.3,
        ),
        case(
            floats(2, 5, 2, 4),
            floats(2, 6, 2, 4),
            floats(2, 6, 2, 4),
            floats(1, 2, 5, 6),
            floats(2, 1, 5, 6) > 0.3,
        ),
    ],
    "conv": [
        case(IMAGES, floats(3, 3, 3, 4)),
        case(IMAGES, floats(3, 2, 3, 4), 2, "same"),
        case(SEQUENCE, floats(3, 3, 4), 1, "valid", dilation_rate=2),
        case(VOLUMES, floats(2, 2, 2, 1, 4), padding="same"),
        case(IMAGES, floats(3, 3, 6, 4), data_format="channels_first"),
    ],
    "conv_transpose": [
        case(IMAGES, floats(3, 3, 4, 3)),
        case(IMAGES, floats(3, 2, 4, 3), 2, "same"),
        case(IMAGES, floats(3, 3, 4, 3), (3, 2), "valid", output_padding=1),
        case(SEQUENCE, floats(2, 4, 3), 3),
        case(SEQUENCE, floats(3, 4, 3), 1, "same", dilation_rate=2),
    ],
    "depthwise_conv": [
        case(IMAGES, floats(3, 3, 3, 2)),
        case(SEQUENCE, floats(2, 3, 2), 2, "same"),
    ],
    "separable_conv": [case(IMAGES, floats(3, 3, 3, 2), floats(1, 1, 6, 4), 1, "same")],
    "max_pool": [
        case(IMAGES, 2, 2),
        case(IMAGES, (3, 2), 1, "same"),
        case(VOLUMES, 2, 2),
        case(SEQUENCE, 3, 2, "same"),
        case(IMAGES, 2, 2, data_format="channels_first"),
    ],
    "average_pool": [
        case(IMAGES, 2, 2),
        case(IMAGES, (3, 2), 1, "same"),
        case(VOLUMES, 2, 2),
        case(SEQUENCE, 3, 2, "same"),
    ],
    "adaptive_average_pool": [
        case(IMAGES, 4),
        case(SEQUENCE, 2),
        case(VOLUMES, 3),
        case(ints(2, 5, 3), 2),
    ],
    "adaptive_max_pool": [case(IMAGES, (4, 3)), case(SEQUENCE, 2)],
    "batch_normalization": [
        case(X, V, W, -1),
        case(X, V, W, -1, W, V, 0.1),
        case(K, V, W, -1),
        case(IMAGES, floats(6), floats(6), 1, scale=floats(6)),
    ],
    "layer_normalization": [
        case(X),
        case(X, V, W, epsilon=0.1),
        case(IMAGES, floats(8, 3), axis=(2, 3)),
    ],
    "rms_normalization": [case(X), case(X, V, epsilon=0.1)],
    "moments": [case(X, 0), case(IMAGES, (1, 2), keepdims=True)],
    "normalize": [case(S), case(S, 0, 1), case(S, -1, 3)],
    "psnr": [case(X, Y, 1.0)],
    "fold": [
        case(floats(2, 12, 9), (4, 4), 2),
        case(floats(2, 12, 9), (6, 6), 2, 2, 1, 2),
    ],
    "unfold": [case(IMAGES, 2), case(IMAGES, (2, 3), 1, 1, 2)],
    "depth_to_space": [
        case(floats(2, 3, 4, 8), 2),
        case(floats(2, 8, 3, 4), 2, "channels_first"),
    ],
    "space_to_depth": [case(IMAGES, 2), case(floats(2, 3, 4, 6), 2, "channels_first")],
    "rearrange": [
        case(IMAGES, "b (h p) w c -> b h (p w) c", p=2),
        case(IMAGES, "b h w c -> (b h) (w c)"),
    ],
    # images
    "image.affine_transform": [
        case(
            IMAGES,
            np.array([1, 0.2, -1, 0.1, 0.9, 0.5, 0, 0], "float32")[None].repeat(2, 0),
        ),
        case(IMAGES[0], [0.8, 0, 1, 0, 1.2, 0, 0, 0], "nearest", "reflect"),
    ],
    "image.crop_images": [
        case(IMAGES, 1, 2, target_height=3, target_width=4),
        case(IMAGES[0], 1, 2, 0, 3),
    ],
    "image.extract_patches": [
        case(IMAGES, 2),
        case(IMAGES, (3, 2), 1, 1, "same"),
        case(IMAGES, 2, 1, 2),
    ],
    "image.extract_patches_3d": [
        case(VOLUMES, 2),
        case(VOLUMES, (2, 3, 2), 1, 1, "same"),
    ],
    "image.gaussian_blur": [
        case(IMAGES, data_format="channels_last"),
        case(IMAGES[0], (5, 3), (2.0, 0.5), data_format="channels_last"),
    ],
    "image.hsv_to_rgb": [case(IMAGES)],
    "image.map_coordinates": [
        case(X, floats(2, 5) * 3, 1),
        case(X, floats(2, 5) * 9 - 3, 0, "wrap"),
    ],
    "image.pad_images": [
        case(IMAGES, 1, 2, target_height=9, target_width=11),
        case(IMAGES[0], 1, 2, 0, 3),
    ],
    "image.perspective_transform": [
        case(
            IMAGES[0],
            np.array([[0, 0], [7, 0], [0, 5], [7, 5]], "float32"),
            np.array([[1, 1], [6, 0], [0, 4], [7, 5]], "float32"),
        )
    ],
    "image.resize": [
        case(IMAGES, (4, 5)),
        case(IMAGES, (12, 9), "nearest"),
        case(IMAGES, (3, 4), "bicubic", antialias=True),
        case(IMAGES[0], (4, 4), crop_to_aspect_ratio=True),
        case(IMAGES, (4, 4), pad_to_aspect_ratio=True, fill_value=2.0),
        case(IMAGES, (4, 5), "lanczos3", data_format="channels_first"),
        case((IMAGES * 255).astype("uint8"), (4, 5)),
    ],
    "image.rgb_to_grayscale": [case(IMAGES)],
    "image.rgb_to_hsv": [case(IMAGES)],
    "image.scale_and_translate": [
        case(
            X,
            (6, 8),
            np.array([2.0, 2.0], "float32"),
            np.array([0.5, 0.0], "float32"),
            (0, 1),
            "linear",
        )
    ],
    "image.sobel_edges": [case(IMAGES)],
    "image.ssim": [
        case(floats(2, 16, 16, 3), floats(2, 16, 16, 3)),
        case(floats(12, 14, 1), floats(12, 14, 1), filter_size=7),
    ],
}
