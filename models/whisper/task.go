package whisper

import (
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
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

// positionsSetting says whether the encoder's positions are trained.
const positionsSetting = "encoder-positions"

// Models returns whisper-tiny to whisper-large.
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
	return train.Model(models.Model{
		Name: name,
		Summary: fmt.Sprintf("Whisper speech recognition, encoder and decoder of %d layers of width %d",
			layers, width),
		Source:    "transformers 5.23, WhisperForConditionalGeneration",
		Batches:   []int{1, 4, 8, 16, 32, 64},
		BatchUnit: "clip",
		Settings: []models.Setting{
			hf.LengthSetting(128, targetPositions),
			{Name: "mel-bins", Usage: "bins of a log-mel frame", Default: melBins, Min: 1, Max: 1024},
			hf.PackedSetting(1),
			models.Switch(positionsSetting, 1,
				"1 if the encoder's positions are trained with all other parameters, 0 if they stay sinusoids, "+
					"as transformers leaves them"),
		},
		Notes: []string{
			"every clip is padded to 30 s, so its length does not matter",
			"stage head trains the output layer, which shares the weight of the token embeddings",
			hf.PackedNote,
			"the steps measured for vprof train the encoder's positions; hf:config.json leaves them fixed: --set " +
				"encoder-positions=0,packed=0 is the same step",
		},
		Adapts: true,
		Levers: models.LeverSet{Loop: models.LoopTrainer},
	}, 16, func(c models.Case) train.Task {
		return Transcription(Config{
			Vocab: vocab, Width: width, MelBins: c.Settings["mel-bins"], EncoderLayers: layers, DecoderLayers: layers,
			EncoderHeads: heads, DecoderHeads: heads, EncoderInner: 4 * width, DecoderInner: 4 * width,
			SourcePositions: sourcePositions, TargetPositions: targetPositions, Activation: "gelu",
			FixedPositions: !c.On(positionsSetting),
		}, hf.TextOf(c))
	})
}

// Transcription returns the task of predicting transcripts, such as text says they
// are, of clips.
func Transcription(c Config, text hf.Text) train.Adaptable {
	net := newGeneration(c)
	return &train.Supervised{
		Net: net, Last: net.ProjOut, Embeddings: []nn.Layer{net.ProjOut},
		RequireGrads: func() {
			net.Model.Encoder.requireGrads = true
			net.Model.Decoder.EmbedTokens.RequireGrads()
		},
		Sample: func(t *trace.Tape, n int64) (features, labels *tensor) {
			return t.New("randn", program.Batch, trace.F32, n, c.MelBins, 2*c.SourcePositions),
				t.New("randint", program.Batch, trace.I64, n, text.Length)
		},
		Learn: func(f *frame, features, labels *tensor, loss **tensor) {
			f.Set(loss, net.call(f, features, labels, text.Packed, text.Checkpointing))
			f.Tape().Mark("forward")
		},
	}
}
