"""Placeholders for absent audio files. --data-shapes or the script's settings state the sampling rate, --lengths the
number of samples.
"""

import functools
import os
import re
import sys
import zlib

from . import data, files, shapes
from .placeholders import replaced


def absent(path):
    """Returns (samples, sampling rate) for an absent file; None if the file exists or the argument is no path."""
    if not files.named(path) or os.path.exists(files.path_to_read(path)):
        return None
    stated = shapes.entry("files", str(path)) or configured()
    if not str(stated).startswith("audio"):
        data.stop("the sound of %s, which is absent" % path, data.SHAPES_FLAG + ': {"files": {"*.wav": "audio 22050"}}')
    sound = shapes.value(stated, row_of(path))
    samples, rate = sound["array"], sound["sampling_rate"]
    data.made.add("sound %d" % len(samples))
    replaced("data", str(path).rpartition(".")[2] + " files", "sounds of %d samples at %d Hz" % (len(samples), rate))
    return samples, rate


def row_of(path):
    """Returns a number for the path of a sound, so that sounds of all lengths are mixed."""
    return zlib.crc32(os.fsencode(path))


RATE = re.compile(r"\b(?:sampling_rate|sample_rate|target_sample_rate|sr)\b[\"']?\s*[:= ]\s*(\d{4,6})\b")


@functools.lru_cache(maxsize=None)
def configured():
    """Returns the kind of audio with the first sampling rate in the command, in a file it names or in the user's source;
    None without one.
    """
    named = [part for word in sys.argv[1:] for part in word.split("=") if files.exists(part) and os.path.getsize(part) < 1 << 20]
    found = RATE.search("\n".join([" ".join(sys.argv), *map(data.source, named + data.sources())]))
    return found and "audio " + found[1]


def reading(real, result):
    """Wraps a function that reads an audio file. For an absent file it returns result(samples, rate, *arguments)."""

    @functools.wraps(real)
    def wrapped(path, *args, **kwargs):
        sound = absent(path)
        return real(path, *args, **kwargs) if sound is None else result(*sound, *args, **kwargs)

    return wrapped


def resampled(samples, rate, sr=22050, *_, **__):
    """Returns (samples, rate) like librosa.load, resampled to sr."""
    if not sr:
        return samples, rate
    return samples[:1].repeat(int(len(samples) * sr / rate)), sr


def watch_scipy(module):
    """Called when scipy.io.wavfile was imported."""
    module.read = reading(module.read, lambda samples, rate, *_, **__: (rate, (samples * 32767).astype("int16")))


def watch_soundfile(module):
    """Called when soundfile was imported."""
    module.read = reading(module.read, lambda samples, rate, *_, **__: (samples, rate))


def watch_librosa(module):
    """Called when librosa.core.audio was imported."""
    module.load = reading(module.load, resampled)


def watch_torchaudio(module):
    """Called when torchaudio was imported."""
    module.load = reading(module.load, lambda samples, rate, *_, **__: (sys.modules["torch"].from_numpy(samples)[None], rate))


WATCHED = {"scipy.io.wavfile": watch_scipy, "soundfile": watch_soundfile, "librosa.core.audio": watch_librosa, "torchaudio": watch_torchaudio}
