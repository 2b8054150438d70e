//go:build linux && cgo

package nvmllib

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// WSL2 has the library in a folder of its own.
func TestTheLibraryOfWSLIsFound(t *testing.T) {
	t.Setenv(PathVariable, "")
	before := wslFolder
	defer func() { wslFolder = before }()
	wslFolder = t.TempDir()
	require.Equal(t, "libnvidia-ml.so.1", Path())
	file := filepath.Join(wslFolder, "libnvidia-ml.so.1")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Equal(t, file, Path())
	t.Setenv(PathVariable, "other.so")
	require.Equal(t, "other.so", Path())
}
