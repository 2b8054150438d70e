package hfconfig

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Steps of transformers' own classes, run by PyTorch's CUDA build with its allocator: what was requested once the model
// was there, after the first forward pass, and at the peaks of the first forward and backward pass and of two steps, to
// the byte. Experts were routed as a GPU that computes nothing routes them, on which no size depends.
func TestStepsRequestWhatPyTorchDoes(t *testing.T) { requestedSteps(t, "testdata/requested.json") }

// So are steps on images.
func TestStepsOnImagesRequestWhatPyTorchDoes(t *testing.T) {
	requestedSteps(t, "testdata/images.json")
}

func requestedSteps(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var ran struct {
		Models []struct {
			Config json.RawMessage
			Steps  []struct {
				Task             string
				Batch            int
				AMP              models.Autocast
				Weights          models.WeightType
				LoRA, Quantize   string
				TrainOnly        string
				GPU              string `json:"Board"`
				Liger            bool
				Checkpointing    bool
				Settings         models.Settings
				Trainable, Total int64
				Bytes            requests
			}
		}
	}
	require.NoError(t, json.Unmarshal(data, &ran))
	require.NotEmpty(t, ran.Models)
	gpus := map[string]trace.GPU{
		"":   {Name: "a100-80", Capability: 80, SMs: 108, ThreadsPerSM: 2048, Memory: 84_987_740_160},
		"t4": {Name: "t4", Capability: 75, SMs: 40, ThreadsPerSM: 1024, Memory: 15_828_320_256},
	}
	for _, of := range ran.Models {
		m := model(t, string(of.Config))
		for _, want := range of.Steps {
			c := models.Case{
				Task: want.Task, Batch: want.Batch, AMP: want.AMP, Weights: want.Weights,
				Checkpointing: want.Checkpointing, Settings: want.Settings,
			}
			c.Quantize, c.Liger, c.TrainOnly = want.Quantize, want.Liger, want.TrainOnly
			if want.LoRA != "" {
				l, err := models.ParseLoRA(want.LoRA)
				require.NoError(t, err)
				c.LoRA = &l
			}
			r, err := m.Record(c, gpus[want.GPU], models.Options{})
			require.NoError(t, err)
			require.Equal(t, want.Total, r.Counts.Total, "%s %+v", of.Config, c)
			require.Equal(t, want.Trainable, r.Counts.Trainable, "%s %+v", of.Config, c)
			got := requested(r.Program)
			for i := range got {
				// models of GPT-J and MPT hold the weights of the layer before, which vprof does not
				if want.Bytes[i] == 0 {
					continue
				}
				require.InEpsilon(t, want.Bytes[i], got[i], 0.0005, "%s %+v: number %d", of.Config, c, i)
			}
		}
	}
}

// requests are bytes requested: of the model, after the first forward pass, and at the peaks
// of the first forward pass, the first backward pass and the whole.
type requests [5]int64

func requested(p *program.Program) requests {
	all := phases(p, asRequested)
	forward := all[phase(0, "forward")]
	return requests{all[phase(-1, "model")].end, forward.end, forward.soFar, all[phase(0, "backward")].soFar, p.Peak()}
}
