package experiment

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// notes writes down what a Progress is told.
func notes(to *[]string) Progress {
	return func(what string, done, total int) { *to = append(*to, fmt.Sprintf("%d/%d %s", done, total, what)) }
}

func TestLongWorkSaysHowFarItIs(t *testing.T) {
	var said []string
	s := toySearch(800, full(models.Case{}))
	s.Progress = notes(&said)
	_, err := Fit(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, []string{"0/1 configurations", "1/1 configurations"}, said)

	said = nil
	other := card(500)
	other.Name, other.Capability = "other", 90
	s.GPUs = append(s.GPUs, other)
	_, err = Fit(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, []string{"0/2 configurations", "1/2 configurations", "2/2 configurations", "0/2 recommendations", "1/2 recommendations", "2/2 recommendations"}, said)
}
