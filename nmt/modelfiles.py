"""What nmt.training reads of nmt.modeldir by its former names."""

from nmt.modeldir import WEIGHTS as WEIGHTS
from nmt.modeldir import read_facts as facts
from nmt.modeldir import read_settings as settings
from nmt.modeldir import read_sides as sides
from nmt.modeldir import reading as reading
from nmt.modeldir import weights_sha256 as weights_sha256

__all__ = ["facts", "settings", "sides"]
