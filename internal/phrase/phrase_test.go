package phrase_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/phrase"
)

func TestPartsStandUnderTheirConditions(t *testing.T) {
	require.Equal(t, " of 3 GiB", phrase.If(true, " of %d %s", 3, "GiB"))
	require.Empty(t, phrase.If(false, " of %d %s", 3, "GiB"))
	require.Equal(t, " on a100", phrase.Prefix(" on ", "a100"))
	require.Empty(t, phrase.Prefix(" on ", ""))
	require.Equal(t, "busy 0 %", phrase.IfKnown("busy %d %%", new(int)))
	require.Empty(t, phrase.IfKnown[int]("busy %d %%", nil))
	for n, want := range map[int]string{0: "0 files", 1: "1 file", 2: "2 files"} {
		require.Equal(t, want, phrase.CountText(n, "file"))
	}
}

func TestListHasWhatHolds(t *testing.T) {
	var all phrase.List
	all.Add("%d %%", 5)
	all.If(false, "left out: %d", 1)
	all.If(true, "mp=%s", "bf16")
	all.AddTexts("", "as it is: 5 %d")
	all.Example("kept: %s, such as %s", "file", nil)
	all.Example("kept: %s, such as %s", "file", []string{"a.pt", "b.pt"})
	require.Equal(t, phrase.List{"5 %", "mp=bf16", "as it is: 5 %d", "kept: 2 files, such as a.pt"}, all)
}
