package shellword_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/internal/shellword"
)

func TestAShellReadsTheWordsThatWereJoined(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell")
	}
	words := rapid.SliceOfN(rapid.StringMatching(`[a-z ='"$\\\[\],*;&|<>~!#\n]{0,8}`), 1, 4)
	rapid.Check(t, func(t *rapid.T) {
		want := words.Draw(t, "words")
		out, err := exec.Command(sh, "-c", `printf '%s\0' `+shellword.Join(want)).Output()
		require.NoError(t, err)
		require.Equal(t, strings.Join(want, "\x00")+"\x00", string(out))
	})
}
