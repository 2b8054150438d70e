package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/cuda"
)

// A GPU shows in the folder of devices. Where it is not used, both streams say so, whatever the
// reason; where there is none, neither does.
func TestAGPUThatIsNotUsedIsSaid(t *testing.T) {
	for node, says := range map[string]string{
		"nvidiactl": "reasons; a remedy", "dxg": "reasons; a remedy",
		"null": "",
	} {
		var stdout, stderr bytes.Buffer
		a := withToy(newSystemApp())
		a.stdin, a.stdout, a.stderr, a.deviceFolder = strings.NewReader(""), &stdout, &stderr, t.TempDir()
		a.openGPU = func(int) (device.Device, error) {
			return nil, &device.UnusableError{Device: "cuda", Reason: "reasons", Remedy: "a remedy"}
		}
		require.NoError(t, os.WriteFile(filepath.Join(a.deviceFolder, node), nil, 0o600))
		require.Equal(t, exitFine, run(t.Context(), a, []string{"sweep", "--model", "toy", "--batch", "8"}))
		require.Contains(t, stdout.String(), "simulated NVIDIA GeForce RTX 5060 Ti")
		if says == "" {
			require.Empty(t, stderr.String())
			require.NotContains(t, stdout.String(), "GPU was not used")
			continue
		}
		require.Equal(t, "vprof: this machine's GPU was not used: "+says+"\n", stderr.String())
		require.Contains(t, stdout.String(), "warning: this machine's GPU was not used: "+says)
	}
}

// A build that cannot drive GPUs says how to get one that can.
func TestABuildWithoutCUDASaysSo(t *testing.T) {
	if cuda.Built {
		t.Skip("this one can")
	}
	var stdout, stderr bytes.Buffer
	a := withToy(newSystemApp())
	a.stdin, a.stdout, a.stderr, a.deviceFolder = strings.NewReader(""), &stdout, &stderr, t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(a.deviceFolder, "nvidiactl"), nil, 0o600))
	require.Equal(t, exitFine, run(t.Context(), a, []string{"sweep", "--model", "toy", "--batch", "8"}))
	require.Contains(t, stderr.String(),
		`not used: this vprof was built without CUDA; build it on Linux with glibc and a C compiler ("make build"`)
}

// "make build" drives GPUs where a compiler for glibc is, and plans elsewhere.
func TestMakeBuildHasCUDA(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("no make")
	}
	says := func(machine string) string {
		cc := filepath.Join(t.TempDir(), "cc")
		require.NoError(t, os.WriteFile(cc, []byte("#!/bin/sh\necho "+machine+"\n"), 0o700))
		out, err := exec.Command("make", "-C", "..", "-n", "build", "CC="+cc).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	for _, machine := range []string{"x86_64-linux-gnu", "aarch64-linux-gnu", "x86_64-redhat-linux"} {
		require.Regexp(t, `CGO_ENABLED=1 CGO_CFLAGS="-O2 .*-I\S+/internal/cudalib/include".* -tags cuda `,
			says(machine))
	}
	for _, machine := range []string{"x86_64-alpine-linux-musl", "arm64-apple-darwin25", "x86_64-w64-mingw32", ""} {
		require.Regexp(t, `CGO_ENABLED=0 \S+ build`, says(machine))
	}
}
