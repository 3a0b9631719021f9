"""Tests of the tables that the files of recurrent layers state."""

from tests.layers.check_layer import check_layer
from tests.layers.peer import assert_same
from tests.layers.recurrent.sequences import both, check_cells, check_layers, mask_of
from tests.tables import table


@table("CONTRACT", "make", "x", "options")
def test_contract(make, x, options):
    check_layer(make, x, **options)


@table("CONFIGS", "layer", ids=lambda i, layer: type(layer).__name__)
def test_config(layer):
    config = layer.get_config()
    assert type(layer).from_config(config).get_config() == config


@table(
    "LAYERS",
    "kind",
    "how",
    rows=lambda kinds: [(kind, how) for kind, hows in kinds.items() for how in hows],
)
def test_layers(kind, how):
    check_layers(kind, how)


@table("CELLS", "kind", rows=list)
def test_cells(kind, request):
    check_cells(kind, request.module.CELLS[kind])


@table("NESTS", "build", "x", "mask")
def test_nests(build, x, mask):
    call = {} if mask is None else {"mask": mask_of(mask)}
    assert_same(*both(build), x, **call)
