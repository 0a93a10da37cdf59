"""What nmt.training reads of nmt.modeldir by its former names."""

from nmt.modeldir import OWN as OWN
from nmt.modeldir import recognise as recognised

__all__ = ["recognised"]
