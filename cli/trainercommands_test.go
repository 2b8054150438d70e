package cli

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/tools/sample"
)

// TestPlansOfTRLsCommandsAreWhatItsScriptsNeed plans documented commands of TRL with small models, and compares the
// allocated bytes with the steps of its own scripts: half of them to 0.2 %, all to 2 %. The recorded commands
// name local data. "make trl-files" records them (tools/record/trl_files.py).
func TestPlansOfTRLsCommandsAreWhatItsScriptsNeed(t *testing.T) {
	sample.Alone(t)
	var off []float64
	for _, s := range recordedSteps[fileStep](t, "testdata/trl-files.jsonl.gz") {
		_, config := s.write(t, "model/config.json")
		folder := strings.TrimSuffix(config, "/model/config.json")
		command := strings.Fields(strings.ReplaceAll(s.Text, "{folder}", folder))
		planned := allocatedOfPlan(t, append([]string{
			"plan", "--gpu", "a100-40", "--torch", s.Stack["torch"], "--format", "json", "--stack",
			"transformers=" + s.Stack["transformers"] + ",trl=" + s.Stack["trl"], "--",
		}, command...))
		require.InEpsilon(t, s.Allocated, planned, 0.02, "%s of %s", s.File, s.Stack["trl"])
		off = append(off, math.Abs(float64(planned)/float64(s.Allocated)-1))
	}
	slices.Sort(off)
	require.LessOrEqual(t, off[len(off)/2], 0.002)
}
