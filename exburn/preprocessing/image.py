"""Images as arrays, from and to files."""

from exburn.utils import array_to_img as array_to_img
from exburn.utils import img_to_array as img_to_array
from exburn.utils import load_img as load_img
from exburn.utils import save_img as save_img
