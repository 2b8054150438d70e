package kernels_test

import (
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"os"
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
	usage, err := os.ReadFile("cubin/usage.csv")
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(usage), "\n")
	require.Contains(t, first, hex.EncodeToString(sum.Sum(nil)), "the cubins are stale: run make kernels")
}

// Every cubin has the kernels of the PTX that it was made of, in as many registers
// as its blocks leave, and hardly any of them in local memory.
func TestCubinsHaveAllKernelsAndHardlySpill(t *testing.T) {
	file, err := os.Open("cubin/usage.csv")
	require.NoError(t, err)
	defer file.Close()
	r := csv.NewReader(file)
	r.Comment = '#'
	rows, err := r.ReadAll()
	require.NoError(t, err)
	require.Equal(t, []string{
		"capability", "kernel", "registers", "stack_bytes", "spill_store_bytes",
		"spill_load_bytes",
	}, rows[0])
	used := map[int]map[string]bool{}
	for _, row := range rows[1:] {
		var n [5]int
		for i, at := range []int{0, 2, 3, 4, 5} {
			n[i], err = strconv.Atoi(row[at])
			require.NoError(t, err)
		}
		require.LessOrEqual(t, n[1], 255, row)
		require.LessOrEqual(t, n[3]+n[4], 32, "%v: local memory is as slow as the device's", row)
		if used[n[0]] == nil {
			used[n[0]] = map[string]bool{}
		}
		used[n[0]][row[1]] = true
	}
	require.Len(t, used, 6)
	for capability, names := range used {
		ptx := kernels.PTX(capability)
		require.Len(t, names, strings.Count(ptx, ".entry"))
		for _, k := range entry.FindAllStringSubmatch(ptx, -1) {
			require.True(t, names[k[1]], "%s for %d", k[1], capability)
		}
		// debug/elf does not know the files of sm_100 and later.
		cubin := kernels.Cubin(capability)
		for name := range names {
			require.True(t, strings.Contains(cubin, ".text."+name+"\x00"), "%s for %d", name, capability)
		}
	}
	for capability, none := range map[int]bool{
		61: true, 70: true, 75: false, 87: false, 89: false, 103: false,
		110: true, 121: false, 130: true,
	} {
		require.Equal(t, none, kernels.Cubin(capability) == "", capability)
	}
}

func TestPTXIsForTheCapabilityOrAnEarlierOne(t *testing.T) {
	for capability, want := range map[int]string{
		70: "sm_70", 72: "sm_70", 75: "sm_75", 80: "sm_80", 86: "sm_80",
		90: "sm_80", 120: "sm_80",
	} {
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
