package phrase_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/phrase"
)

func TestPartsStandUnderTheirConditions(t *testing.T) {
	require.Equal(t, " of 3 GiB", phrase.If(true, " of %d %s", 3, "GiB"))
	require.Empty(t, phrase.If(false, " of %d %s", 3, "GiB"))
	require.Equal(t, " on a100", phrase.After(" on ", "a100"))
	require.Empty(t, phrase.After(" on ", ""))
	require.Equal(t, "busy 0 %", phrase.Known("busy %d %%", new(int)))
	require.Empty(t, phrase.Known[int]("busy %d %%", nil))
	for n, want := range map[int]string{0: "0 files", 1: "1 file", 2: "2 files"} {
		require.Equal(t, want, phrase.Count(n, "file"))
	}
}

func TestListHasWhatHolds(t *testing.T) {
	var all phrase.List
	all.Add("%d %%", 5)
	all.If(false, "left out: %d", 1)
	all.If(true, "mp=%s", "bf16")
	all.Text("", "as it is: 5 %d")
	all.Such("kept: %s, such as %s", "file", nil)
	all.Such("kept: %s, such as %s", "file", []string{"a.pt", "b.pt"})
	require.Equal(t, phrase.List{"5 %", "mp=bf16", "as it is: 5 %d", "kept: 2 files, such as a.pt"}, all)
}
