package wav2vec2

import (
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

const sampleRate = 16_000

// The names of the settings.
const (
	secondsSetting = "audio-seconds"
	labelsSetting  = "seq-len"
)

// Settings returns the settings of the audio clips' length and transcript.
func Settings() []models.Setting {
	return []models.Setting{
		{Name: secondsSetting, Usage: "seconds of a clip", Length: true, Default: 5, Min: 1, Max: 3600},
		{Name: labelsSetting, Usage: "labels of a clip", Default: 50, Min: 1, Max: 1 << 16},
	}
}

// CheckClip returns the setting and reason if a case's clips are too short for the convolutions, else empty strings.
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

// Recognition returns the task of speech recognition by CTC on clips of the sizes in the case's [Settings].
// transformers finds no input embeddings in the model, and so no output embeddings.
func Recognition(c Config, k models.Case) train.Adaptable {
	net := newRecognizer(c)
	return &train.SupervisedTask{
		Net: net, Last: net.LmHead,
		Sample: func(t *trace.Tape, n int64) (values, labels *tensor) {
			return t.New("randn", program.Batch, trace.F32, n, sampleRate*k.Settings[secondsSetting]),
				t.New("randint", program.Batch, trace.I64, n, k.Settings[labelsSetting])
		},
		Learn: func(f *frame, values, labels *tensor, loss **tensor) {
			logits := f.Bind(net.call(f, values, k.Checkpointing))
			f.Tape().Output(nil, logits)
			f.Tape().Mark("forward")
			lp := f.Bind(logits.LogSoftmaxTo(-1, trace.F32).Transpose(0, 1))
			f.Set(loss, ops.CTCLoss(lp, labels, ops.CTCLossArgs{Reduction: trace.ReduceSum, ZeroInfinity: true}))
			f.Del(&logits, &lp)
		},
	}
}
