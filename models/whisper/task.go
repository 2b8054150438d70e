package whisper

import (
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// What all sizes have in common: the multilingual vocabulary, and clips padded
// to 30 s, which are 3000 log-mel frames and half as many positions.
const (
	vocab           = 51865
	melBins         = 80
	sourcePositions = 1500
	targetPositions = 448
)

// Models are whisper-tiny to whisper-large.
func Models() []models.Model {
	return []models.Model{
		entry("whisper-tiny", 384, 4, 6),
		entry("whisper-base", 512, 6, 8),
		entry("whisper-small", 768, 12, 12),
		entry("whisper-medium", 1024, 24, 16),
		entry("whisper-large", 1280, 32, 20),
	}
}

func entry(name string, width, layers, heads int64) models.Model {
	return models.Model{
		Name:      name,
		Summary:   fmt.Sprintf("Whisper speech recognition, encoder and decoder of %d layers of width %d", layers, width),
		Source:    "transformers 5.23, WhisperForConditionalGeneration",
		Stages:    train.Stages(),
		Default:   models.Case{Model: name, Stage: "full", Batch: 16, Accumulate: 1},
		Batches:   []int{1, 4, 8, 16, 32, 64},
		BatchUnit: "clip",
		Settings: []models.Setting{
			{Name: "seq-len", Usage: "tokens of a transcript", Default: 128, Min: 1, Max: targetPositions},
			{Name: "mel-bins", Usage: "bins of a log-mel frame", Default: melBins, Min: 1, Max: 1024},
			{Name: "packed", Usage: "1 if rows hold several transcripts, 0 if each holds one", Default: 1, Min: 0, Max: 1},
		},
		Notes: []string{
			"every clip is padded to 30 s, so its length does not matter",
			"stage head trains the output layer, whose weight is that of the token embeddings",
			"rows that hold one transcript each need no attention mask, and flash attention serves them in half precision: --set packed=0",
		},
		Build: func(c models.Case) (models.Trainer, error) {
			config := Config{
				Vocab: vocab, Width: width, MelBins: c.Settings["mel-bins"], EncoderLayers: layers, DecoderLayers: layers,
				EncoderHeads: heads, DecoderHeads: heads, EncoderInner: 4 * width, DecoderInner: 4 * width,
				SourcePositions: sourcePositions, TargetPositions: targetPositions,
			}
			return train.NewTrainer(&transcription{
				net: newGeneration(config), c: config, length: c.Settings["seq-len"],
				packed: c.Settings["packed"] == 1, checkpointing: c.Checkpointing,
			}, c), nil
		},
	}
}

// transcription is the task of predicting transcripts.
type transcription struct {
	net                   *generation
	c                     Config
	length                int64
	packed, checkpointing bool
	features, labels      *tensor
}

func (t *transcription) Model() any { return t.net }
func (t *transcription) Head() any  { return t.net.ProjOut }

// Load implements [train.Task].
func (t *transcription) Load(tape *trace.Tape, n int64) {
	t.features = tape.Hold(tape.New("randn", program.Batch, trace.F32, n, t.c.MelBins, 2*t.c.SourcePositions))
	t.labels = tape.Hold(tape.New("randint", program.Batch, trace.I64, n, t.length))
}

// Loss implements [train.Task].
func (t *transcription) Loss(f *frame, loss **tensor) {
	f.Set(loss, t.net.call(f, t.features, t.labels, t.packed, t.checkpointing))
	f.Tape().Mark("forward")
}
