"""What nmt.training reads of nmt.modeldir by its former names."""

from nmt.modeldir import BEST as BEST
from nmt.modeldir import checkpoints as checkpoints
from nmt.modeldir import locate as locate
