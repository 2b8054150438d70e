package wav2vec2

import (
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// sampleRate is the sampling rate of the audio, in samples a second.
const sampleRate = 16_000

// The names of the settings.
const (
	secondsSetting = "audio-seconds"
	labelsSetting  = "seq-len"
)

// Settings are the sizes of clips.
func Settings() []models.Setting {
	return []models.Setting{
		{Name: secondsSetting, Usage: "seconds of a clip", Length: true, Default: 5, Min: 1, Max: 3600},
		{Name: labelsSetting, Usage: "labels of a clip", Default: 50, Min: 1, Max: 1 << 16},
	}
}

// CheckClip finds clips too short for the convolutions. The reason is empty if
// they are not.
func (c Config) CheckClip(k models.Case) (setting, reason string) {
	length := sampleRate * k.Settings[secondsSetting]
	for i, l := range c.Conv {
		if length < l.Kernel {
			return secondsSetting, fmt.Sprintf("%d are too short: convolution %d has a kernel of %d and gets %d "+
				"samples", k.Settings[secondsSetting], i+1, l.Kernel, length)
		}
		length = (length-l.Kernel)/l.Stride + 1
	}
	return "", ""
}

// base is Wav2Vec2Config's default, without layer drop and SpecAugment.
func base() Config {
	c := Config{
		Vocab: 32, Width: 768, Layers: 12, Heads: 12, Inner: 3072, PositionKernel: 128, PositionGroups: 16,
		HiddenDropout: 0.1, AttentionDropout: 0.1, ActivationDropout: 0.1, FinalDropout: 0.1,
		FeatureActivation: "gelu", Activation: "gelu",
	}
	for i, kernel := range []int64{10, 3, 3, 3, 3, 2, 2} {
		l := ConvLayer{Width: 512, Kernel: kernel, Stride: 2}
		if i == 0 {
			l.Stride = 5
		}
		c.Conv = append(c.Conv, l)
	}
	return c
}

// Models are wav2vec2-base and wav2vec2-large.
func Models() []models.Model {
	large := base()
	large.Width, large.Layers, large.Heads, large.Inner = 1024, 24, 16, 4096
	return []models.Model{
		entry("wav2vec2-base", "wav2vec 2.0 speech recognition, 12 layers of width 768", base()),
		entry("wav2vec2-large", "wav2vec 2.0 speech recognition, 24 layers of width 1024", large),
	}
}

func entry(name, summary string, config Config) models.Model {
	return train.Model(models.Model{
		Name:      name,
		Summary:   summary,
		Source:    "transformers 5.23, Wav2Vec2ForCTC",
		Batches:   []int{1, 2, 4, 8, 16, 32},
		BatchUnit: "clip",
		Settings:  Settings(),
		Notes: []string{
			"the input of the convolutions requires a gradient in training, so stage head runs backward through all " +
				"of them",
			"layers are never dropped and nothing is masked, so that every step needs the same",
		},
		Adapts: true,
		Levers: models.LeverSet{Loop: models.LoopTrainer},
	}, 4, func(c models.Case) train.Task { return Recognition(config, c) })
}

// recognition is the task of recognizing the labels of clips.
type recognition struct {
	net             *recognizer
	samples, length int64
	checkpointing   bool
	values, labels  *tensor
}

// Recognition is the task of recognizing labels in clips of the sizes of a case,
// which has [Settings].
func Recognition(c Config, k models.Case) train.Adaptable {
	return &recognition{
		net: newRecognizer(c), samples: sampleRate * k.Settings[secondsSetting], length: k.Settings[labelsSetting],
		checkpointing: k.Checkpointing,
	}
}

func (t *recognition) Model() any { return t.net }
func (t *recognition) Head() any  { return t.net.LmHead }

// Unadapted implements [train.Adaptable]: the model has no input embeddings in
// the eyes of transformers, and so no output embeddings.
func (t *recognition) Unadapted() []nn.Layer { return nil }

// Saved implements [train.Adaptable]: peft knows of no such task.
func (t *recognition) Saved() []*nn.Layer { return nil }

// RequireInputGrads implements [train.Adaptable]; the input requires them
// anyway.
func (t *recognition) RequireInputGrads() {}

// Load implements [train.Task].
func (t *recognition) Load(tape *trace.Tape, n int64) {
	t.values = tape.Hold(tape.New("randn", program.Batch, trace.F32, n, t.samples))
	t.labels = tape.Hold(tape.New("randint", program.Batch, trace.I64, n, t.length))
}

// Loss implements [train.Task].
func (t *recognition) Loss(f *frame, loss **tensor) {
	logits := f.Let(t.net.call(f, t.values, t.checkpointing))
	f.Tape().Output(nil, logits)
	f.Tape().Mark("forward")
	lp := f.Let(logits.LogSoftmaxTo(-1, trace.F32).Transpose(0, 1))
	f.Set(loss, lp.CTCLoss(t.labels, trace.CTCLossArgs{Reduction: trace.ReduceSum, ZeroInfinity: true}))
	f.Del(&logits)
	f.Del(&lp)
}
