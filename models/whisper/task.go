package whisper

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// positionsSetting is the name of [PositionsSetting].
const positionsSetting = "encoder-positions"

// PositionsSetting returns whether the encoder's positions are trained.
func PositionsSetting() models.Setting {
	return models.Switch(positionsSetting, 1, "1 if the encoder's positions are trained with all other parameters, 0 "+
		"if they stay sinusoids, as transformers leaves them")
}

// Transcription returns the task of predicting the transcripts of clips.
func Transcription(c Config, k models.Case) train.Adaptable {
	text := hf.TextOf(k)
	c.TrainedPositions = k.On(positionsSetting)
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
