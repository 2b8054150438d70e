package kernels_test

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/kernels"
	"github.com/vprof/vprof/kernels/cudac"
)

func TestPTXIsMadeFromTheSources(t *testing.T) {
	files, err := cudac.Sources.ReadDir(".")
	require.NoError(t, err)
	sum := sha256.New()
	for _, f := range files {
		source, err := cudac.Sources.ReadFile(f.Name())
		require.NoError(t, err)
		sum.Write([]byte(f.Name() + "\x00" + string(source) + "\x00"))
	}
	for _, arch := range archs {
		first, _, _ := strings.Cut(kernels.PTX(arch), "\n")
		require.Contains(t, first, hex.EncodeToString(sum.Sum(nil)), "stale: run make kernels")
	}
}

func TestPTXIsForTheCapabilityOrAnEarlierOne(t *testing.T) {
	for capability, want := range map[int]string{70: "sm_70", 72: "sm_70", 75: "sm_75", 80: "sm_80", 86: "sm_80", 90: "sm_80", 120: "sm_80"} {
		ptx := kernels.PTX(capability)
		require.Contains(t, ptx, "\n.version 7.8\n")
		require.Contains(t, ptx, "\n.target "+want+"\n")
	}
	require.Empty(t, kernels.PTX(61))
}

var entry = regexp.MustCompile(`\.visible \.entry (\w+)\(\s*\.param \.align 8 \.b8 \w+\[(\d+)\]\s*\)`)

// The driver and the CPU must agree on what a kernel takes: one structure.
func TestKernelsTakeOneStructureOfTheSameSizeEverywhere(t *testing.T) {
	if !cudac.Available {
		t.Skip(cudac.Missing)
	}
	for _, arch := range archs {
		ptx := kernels.PTX(arch)
		kernels := entry.FindAllStringSubmatch(ptx, -1)
		require.Len(t, kernels, strings.Count(ptx, ".entry"))
		for _, k := range kernels {
			size, ok := cudac.Arguments(arch, k[1])
			require.True(t, ok, k[1])
			require.Equal(t, k[2], strconv.Itoa(size), k[1])
		}
	}
}
