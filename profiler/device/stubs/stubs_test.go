package stubs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/device"
)

func TestUnpackTwiceIsTheSameFolder(t *testing.T) {
	if len(stubArchive) == 0 {
		t.Skip("the libraries are for Linux on x86-64 and arm64")
	}
	cache := t.TempDir()
	first, err := Unpack(cache)
	require.NoError(t, err)
	second, err := Unpack(cache)
	require.NoError(t, err)
	require.Equal(t, first, second)
	for _, name := range []string{"libvprof_gpu.so", "libcuda.so.1", "libnvidia-ml.so.1", "vprof-cudart.so.13"} {
		require.FileExists(t, filepath.Join(first, "13", name))
	}
	left, err := os.ReadDir(cache)
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing but the libraries is left")
}

func TestWriteGPU(t *testing.T) {
	gpu, err := device.Lookup("rtx-3090")
	require.NoError(t, err)
	var text strings.Builder
	require.NoError(t, WriteGPU(&text, gpu, 2, 13020))
	for _, line := range []string{
		"name NVIDIA GeForce RTX 3090", "cc_major 8", "cc_minor 6", "sms 82",
		"shared_per_block 101376", "count 2", "driver 13020",
	} {
		require.Contains(t, strings.Split(text.String(), "\n"), line)
	}
}
