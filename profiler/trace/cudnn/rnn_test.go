package cudnn_test

import (
	_ "embed"
	"encoding/csv"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/trace/cudnn"
)

//go:embed testdata/rnn-spaces.csv
var rnnSpaces string

// Sizes of recurrent layers equal the sizes that cuDNN reports, to the byte where no matrix needs to be aligned.
func TestRNNSpacesAreCuDNNs(t *testing.T) {
	modes := map[string]cudnn.RNNMode{"SimpleRNN": cudnn.SimpleRNN, "GRU": cudnn.GRU, "LSTM": cudnn.LSTM}
	r := csv.NewReader(strings.NewReader(rnnSpaces))
	r.Comment = '#'
	rows, err := r.ReadAll()
	require.NoError(t, err)
	for _, row := range rows[1:] {
		n := make([]int64, len(row))
		for i := 1; i < len(row); i++ {
			n[i], err = strconv.ParseInt(row[i], 10, 64)
			require.NoError(t, err)
		}
		layers := cudnn.RNN{
			Mode: modes[row[0]], Element: n[1], Length: n[2], Batch: n[3], Inputs: n[4], Hidden: n[5], Layers: n[6],
			Directions: n[7], Training: n[8] == 1, Dropout: n[9] == 1, Packed: n[10],
		}
		require.Equal(t, n[11], layers.Workspace(86), "workspace of %v", row)
		if layers.Training {
			require.Equal(t, n[12], layers.Reserve(), "reserve of %v", row)
		}
	}
}
