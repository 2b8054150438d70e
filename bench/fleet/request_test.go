package fleet

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
)

// planned returns a plan of some batch sizes on GPUs of any names, for any number of GPUs.
func planned(t *rapid.T) *report.Report {
	memory := rapid.Int64Range(1<<30, 200<<30).Draw(t, "memory")
	r := &report.Report{
		Case: report.Case{Case: models.Case{
			Model: rapid.String().Draw(t, "model"), GPUs: rapid.IntRange(0, 300).Draw(t, "gpus"),
		}},
		Devices: []report.Device{{Name: "sim", GPU: rapid.String().Draw(t, "board"), Memory: memory}},
	}
	for range rapid.IntRange(1, 3).Draw(t, "points") {
		need := rapid.Int64Range(1, 2*memory).Draw(t, "need")
		r.Points = append(r.Points, report.Point{
			Batch: 8, Device: "sim", Estimate: &report.Estimate{
				Device: report.Interval{High: need}, Verdict: report.Fits, Host: rapid.Ptr(rapid.Map(
					rapid.Int64Range(1, 1<<44), func(n int64) report.HostMemory {
						return report.HostMemory{Interval: report.Interval{High: n}}
					}), true).Draw(t, "host"),
			},
		})
	}
	return r
}

// Whatever is planned and however the GPU is called, a request is text that its scheduler can read: every line
// of Slurm's is a comment or an option, the other requests are documents of YAML, and all request at least one GPU.
func TestRequestsAreReadByTheirSchedulers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := planned(t)
		to := rapid.SampledFrom(Requests()).Draw(t, "to")
		var text bytes.Buffer
		require.NoError(t, WriteRequests(&text, r, to))
		if to == "slurm" || to == "ray" {
			for line := range strings.Lines(text.String()) {
				require.Regexp(t, `^(#.*|from ray.train import ScalingConfig|scaling_config = .*\(num_workers=[1-9].*\)|)\n$`, line)
			}
			return
		}
		documents, count := yaml.NewDecoder(&text), 0
		for {
			var document map[string]any
			err := documents.Decode(&document)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			require.NotEmpty(t, document)
			count++
		}
		require.Equal(t, len(r.Points), count)
	})
}
