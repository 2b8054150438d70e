package script

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHookHasAllOfItsSources(t *testing.T) {
	count := 0
	err := fs.WalkDir(os.DirFS("."), "hook", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".py") {
			count++
			_, err = hook.Open(path)
		}
		return err
	})
	require.NoError(t, err)
	require.Greater(t, count, 30)
}
