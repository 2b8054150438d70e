package device_test

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

func TestLookupTakesWhatPeopleCallAGPU(t *testing.T) {
	tests := []struct{ in, want string }{
		{"rtx-5060-ti", "rtx-5060-ti"},
		{"RTX 5060 Ti", "rtx-5060-ti"},
		{"5060ti", "rtx-5060-ti"},
		{"NVIDIA GeForce RTX 5060 Ti", "rtx-5060-ti"},
		{"geforce_rtx_3090", "rtx-3090"},
		{"A100-SXM4-80GB", "a100-80"},
		{"NVIDIA A100-SXM4-40GB", "a100-40"},
		{"a100-80gb", "a100-80"},
		{"Tesla T4", "t4"},
		{"h100-80", "h100"},
		{"Quadro RTX 6000", "quadro-rtx-6000"},
		{"RTX A6000", "a6000"},
		{"GTX 1050 Ti", "gtx-1050-ti"},
		{"5060 Ti 16 GB", "rtx-5060-ti"},
		{"RTX 3080 10GB", "rtx-3080"},
		{"sim:rtx-4090", "rtx-4090"},
		{"V100-SXM2 32GB", "v100-32"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			g, err := device.Lookup(tt.in)
			require.NoError(t, err)
			require.Equal(t, tt.want, g.Name)
		})
	}
}

func TestUnknownGPUSuggestsUpToThreeNames(t *testing.T) {
	tests := []struct {
		in   string
		want []string
	}{
		{"a100", []string{"a100-40", "a100-80", "a100-40-pcie"}}, // several sizes: the user must say which
		{"h100-sxm4", []string{"h100-pcie", "h100-nvl", "h100"}},
		{"v100", []string{"v100-16", "v100-32", "p100"}},
		{"radeon-rx-7900", nil},
		{"", nil},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			_, err := device.Lookup(tt.in)
			var unknown *device.UnknownGPUError
			require.ErrorAs(t, err, &unknown)
			require.Equal(t, tt.in, unknown.Name)
			require.Equal(t, tt.want, unknown.Nearest)
			for _, name := range tt.want {
				require.ErrorContains(t, err, name)
			}
			require.ErrorContains(t, err, "vprof gpus")
		})
	}
}

func TestWhatIsNoGPUIsToldSo(t *testing.T) {
	for name, want := range map[string]string{
		"MI300X": "NVIDIA's GPUs alone", "gaudi2": "NVIDIA's GPUs alone", "M3 Max": "NVIDIA's GPUs alone",
		"A100:1g.5gb": "a slice of MIG by --gpu-spec", "MIG 1g.10gb": "a slice of MIG",
		"8xH100": "--gpus N", "2 x 4090": "--gpus N", "4090x8": "--gpus N", "h100:8": "--gpus N",
		"cuda:0": "--device cuda:0",
		"local":  "--device cuda:0",
		"":       "name a GPU", "3080 24GB": `unknown GPU "3080 24GB" (list all`,
	} {
		_, err := device.Lookup(name)
		require.ErrorContains(t, err, want, name)
	}
}

func TestEveryNameFindsItsGPU(t *testing.T) {
	for _, g := range device.Catalog() {
		for _, name := range append([]string{g.Name, strings.ToUpper(g.Name)}, g.Aliases...) {
			found, err := device.Lookup(name)
			require.NoError(t, err)
			require.Equal(t, g, found, name)
		}
		found, err := device.Identify(g.Product, g.Memory)
		require.NoError(t, err)
		require.Equal(t, g, found)
	}
}

// The driver gives GPUs of different memory one name, and slices their profile.
func TestAGPUIsIdentifiedByNameAndMemory(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []struct {
		product string
		memory  int64
		want    string
	}{
		{"NVIDIA GeForce RTX 5060 Ti", 16_615_079_936, "rtx-5060-ti"},
		{"NVIDIA GeForce RTX 5060 Ti", 8_100_000_000, "rtx-5060-ti-8"},
		{"NVIDIA GeForce RTX 4060 Ti", 16_700_000_000, "rtx-4060-ti-16"},
		{"NVIDIA GeForce RTX 4060 Ti", 8_192_524_288, "rtx-4060-ti-8"},
		{"NVIDIA GeForce RTX 3080", 10_494_541_824, "rtx-3080"},
		{"NVIDIA GeForce RTX 3080", 12_622_168_064, "rtx-3080-12"},
		{"NVIDIA A100-SXM4-80GB MIG 1g.10gb", 10_200_547_328, "a100-80-mig-1g.10gb"},
		{"NVIDIA H200 MIG 3g.71gb", 74_000_000_000, "h200-mig-3g.71gb"},
	} {
		gpu, err := device.Identify(tt.product, tt.memory)
		require.NoError(t, err)
		require.Equal(t, tt.want, gpu.Name)
	}
	_, err := device.Identify("NVIDIA Future X1", 8*gib)
	require.ErrorAs(t, err, new(*device.UnknownGPUError))
}

func TestASliceIsItsShareOfTheGPU(t *testing.T) {
	whole, err := device.Lookup("a100-40")
	require.NoError(t, err)
	for _, name := range []string{
		"a100-40 1g.5gb", "a100-40-mig-1g.5gb", "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
		"sim:a100-40:1g.5gb", "a100-40 1g.5gb+me",
	} {
		gpu, err := device.Lookup(name)
		require.NoError(t, err, name)
		require.Equal(t, "a100-40-mig-1g.5gb", gpu.Name)
		require.Equal(t, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", gpu.Product)
		require.Equal(t, 14, gpu.SMs)
		require.EqualValues(t, 4864*1024*1024, gpu.Memory)
		require.InEpsilon(t, whole.Peak.BF16*14/108, gpu.Peak.BF16, 1e-9)
		require.Equal(t, whole.Context, gpu.Context)
	}
	_, err = device.Lookup("a100-40 1g.7gb")
	require.ErrorContains(t, err, "a100-40-mig-1g.5gb, a100-40-mig-1g.10gb")
}

func TestCatalogHasTheGPUsPeopleTrainOn(t *testing.T) {
	require.Subset(t, device.Names(), []string{
		"gtx-1050-ti", "gtx-1080", "gtx-1650", "rtx-3060", "rtx-3070", "rtx-3080", "rtx-3090", "rtx-4070", "rtx-4090",
		"rtx-5060-ti", "rtx-5090", "quadro-rtx-6000", "k80", "p100", "t4", "v100-16", "v100-32", "a10", "l4", "l40s",
		"a6000", "a100-40", "a100-80", "h100", "h200", "b200",
		"rtx-4060", "rtx-4060-ti-8", "rtx-4060-ti-16", "rtx-4070-ti-super", "rtx-4080", "rtx-4080-super",
		"rtx-5070", "rtx-5070-ti", "rtx-5080", "rtx-3060-ti", "rtx-2070-super", "a30", "a40", "a5000", "l40",
		"rtx-6000-ada",
		"rtx-pro-6000", "a100-40-pcie", "a100-80-pcie", "h100-pcie", "a10g", "rtx-3090-ti", "quadro-rtx-8000", "h20",
		"gh200", "gb200", "jetson-agx-orin", "jetson-orin-nano", "jetson-orin-nx", "jetson-thor", "dgx-spark",
		"rtx-4070-super", "rtx-3080-ti", "rtx-2060", "rtx-5060", "a4000", "h100-nvl", "b300", "gh200-144",
		"rtx-5060-ti-8", "rtx-3080-12", "rtx-4090-laptop", "gtx-1060", "gtx-1080-ti", "p40", "gtx-1660-ti",
		"rtx-2070", "rtx-2080", "titan-rtx", "rtx-3050", "rtx-3070-ti", "a4500", "rtx-4070-ti", "rtx-4090-d", "l20",
		"rtx-5000-ada", "rtx-5070-laptop",
	})
}

// coresPerSM are the FP32 lanes of a multiprocessor, from the table of
// arithmetic throughput in NVIDIA's CUDA programming guide.
var coresPerSM = map[device.Capability]int{
	37: 192, 60: 64, 61: 128, 70: 64, 75: 64, 80: 64, 86: 128, 87: 128, 89: 128, 90: 128, 100: 128, 103: 128,
	110: 128, 120: 128, 121: 128,
}

func TestFP32RateIsLanesTimesClock(t *testing.T) {
	for _, g := range device.Catalog() {
		lanes := coresPerSM[g.Capability]
		require.NotZero(t, lanes, g.Name)
		// A lane does one multiply-add, two operations, per cycle.
		want := 2 * float64(lanes) * float64(g.SMs) * float64(g.BoostMHz) * 1e6
		require.InEpsilon(t, want, g.Peak.FP32, 0.01, g.Name)
	}
}

func TestGPUsThatPyTorchLeftBehindAreNamed(t *testing.T) {
	for _, c := range []struct{ gpu, torch, cuda, want string }{
		{"k80", "2.15", "13.2", "no build of PyTorch 2.15"},
		{"k80", "2.8", "12.8", "no build of PyTorch 2.8"},
		{"p100", "2.8", "12.8", "PyTorch 2.8 as PyPI has it, for CUDA 12.8"},
		{"v100-16", "2.8", "12.8", ""},
		{"v100-16", "2.11", "13.0", "PyTorch 2.11 as PyPI has it, for CUDA 13.0"},
		{"t4", "2.15", "13.2", ""},
		{"b200", "2.15", "13.2", ""},
	} {
		gpu, err := device.Lookup(c.gpu)
		require.NoError(t, err)
		if why := gpu.Unsupported(c.torch, c.cuda); c.want == "" {
			require.Empty(t, why, c.gpu)
		} else {
			require.Contains(t, why, c.want, c.gpu)
		}
	}
}

func TestTensorCoresCameWithVoltaTF32AndBF16WithAmpere(t *testing.T) {
	for _, g := range device.Catalog() {
		hasTensorCores := g.Capability >= 70 && !strings.HasPrefix(g.Name, "gtx-16")
		require.Equal(t, hasTensorCores, g.Peak.FP16 > 0, g.Name)
		require.Equal(t, g.Capability >= 80, g.Peak.TF32 > 0, g.Name)
		require.Equal(t, g.Capability >= 80, g.Peak.BF16 > 0, g.Name)
		if g.Capability >= 80 {
			require.InDelta(t, g.Peak.FP16, g.Peak.BF16, 0, g.Name)
			// TF32 has half the rate of the 16-bit formats; data sheets round.
			require.InEpsilon(t, g.Peak.FP16/2, g.Peak.TF32, 0.03, g.Name)
		}
	}
}

func TestCatalogIsOrderedBySpeedWithinGenerations(t *testing.T) {
	gpus := device.Catalog()
	for i, g := range gpus[1:] {
		before := gpus[i]
		require.LessOrEqual(t, before.Capability, g.Capability)
		if before.Capability == g.Capability {
			require.LessOrEqual(t, before.Peak.FP32, g.Peak.FP32, "%s, %s", before.Name, g.Name)
		}
	}
}

func TestCatalogEntriesAreComplete(t *testing.T) {
	for _, g := range device.Catalog() {
		require.Regexp(t, `^[a-z0-9]+(-[a-z0-9]+)*$`, g.Name)
		require.NotEmpty(t, g.Product, g.Name)
		require.NotEmpty(t, g.Generation, g.Name)
		require.NotEmpty(t, g.Source, g.Name)
		require.NotEmpty(t, g.ContextSource, g.Name)
		require.Positive(t, g.Peak.FP64, g.Name)
		require.Positive(t, g.Context, g.Name)
		// A context takes a few hundred MiB at most, on any GPU.
		require.Less(t, g.Context, int64(1<<30), g.Name)
		require.Greater(t, g.Memory, int64(3<<30), g.Name)
		require.Contains(t, []int{1024, 1536, 2048}, g.ThreadsPerSM, g.Name)
		require.Greater(t, g.Bandwidth, 1e11, g.Name)
	}
}

func TestCatalogCannotBeChangedFromOutside(t *testing.T) {
	device.Catalog()[0].Name = "changed"
	require.NotEqual(t, "changed", device.Catalog()[0].Name)
}

// The reference data was recorded on a driver that showed PyTorch the GPUs
// of testdata/reference-gpus.csv: the catalog must describe the same.
func TestCatalogAgreesWithTheGPUsBelowTheReferenceData(t *testing.T) {
	f, err := os.Open("testdata/reference-gpus.csv")
	require.NoError(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 21)
	for _, row := range rows[1:] {
		g, err := device.Lookup(row[0])
		require.NoError(t, err)
		got := []string{
			row[0], g.Product, strconv.Itoa(int(g.Capability)), strconv.Itoa(g.SMs), strconv.Itoa(g.ThreadsPerSM),
			strconv.FormatInt(g.Memory, 10), strconv.FormatInt(g.Context, 10),
		}
		if strings.Contains(g.ContextSource, "reference") { // else real GPUs told
			require.Equal(t, row[6], got[6], g.Name)
		}
		require.Equal(t, row[:6], got[:6])
		// Its bandwidth is memory clock times bus width. Data sheets round, and the sheets of HBM GPUs promise up to 6
		// % less.
		bandwidth, err := strconv.ParseFloat(row[7], 64)
		require.NoError(t, err)
		require.InEpsilon(t, bandwidth, g.Bandwidth, 0.06, g.Name)
	}
}

var capacity = regexp.MustCompile(`total capacity of ([0-9.]+ GiB)`)

func TestMemoryAndContextAreThoseOfTheReferenceRecords(t *testing.T) {
	files, err := filepath.Glob("../../bench/reference/data/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	gpus := map[string]bool{}
	capacities := 0
	for _, file := range files {
		for _, line := range referenceLines(t, file) {
			var record struct {
				GPU     string
				Context int64 `json:"device_used_context"`
				Error   string
			}
			require.NoError(t, json.Unmarshal([]byte(line), &record), file)
			g, err := device.Lookup(record.GPU)
			require.NoError(t, err, file)
			gpus[g.Name] = true
			if record.Context != 0 && strings.Contains(g.ContextSource, "reference") {
				require.Equal(t, record.Context, g.Context, "%s in %s", g.Name, file)
			}
			if m := capacity.FindStringSubmatch(record.Error); m != nil {
				require.Equal(t, m[1], bytesize.Format(g.Memory), "%s in %s", g.Name, file)
				capacities++
			}
		}
	}
	require.Len(t, gpus, 7)
	require.Equal(t, 42, capacities)
}

func referenceLines(t *testing.T, file string) []string {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	var lines []string
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		lines = append(lines, s.Text())
	}
	require.NoError(t, s.Err())
	return lines[1:] // the first is the file's header
}

func TestCapabilityReadsLikeNVIDIAs(t *testing.T) {
	require.Equal(t, "12.0", device.Capability(120).String())
	require.Equal(t, "8.6", device.Capability(86).String())
}

func TestRatesFallBackToFP32WithoutTensorCores(t *testing.T) {
	pascal := device.Rates{FP32: 8, FP64: 0.25}
	require.InDelta(t, 8, pascal.ForPrecision(program.FP16), 0)
	require.InDelta(t, 8, pascal.ForPrecision(program.BF16), 0)
	require.InDelta(t, 8, pascal.ForPrecision(program.TF32), 0)
	require.InDelta(t, 0.25, pascal.ForPrecision(program.FP64), 0)
	ampere := device.Rates{FP32: 1, TF32: 2, FP16: 4, BF16: 5, FP64: 6}
	require.InDelta(t, 1, ampere.ForPrecision(program.FP32), 0)
	require.InDelta(t, 2, ampere.ForPrecision(program.TF32), 0)
	require.InDelta(t, 4, ampere.ForPrecision(program.FP16), 0)
	require.InDelta(t, 5, ampere.ForPrecision(program.BF16), 0)
	require.InDelta(t, 6, ampere.ForPrecision(program.FP64), 0)
}

func TestRooflineIsTheSlowerOfMemoryAndArithmetic(t *testing.T) {
	g := device.GPU{Bandwidth: 100e9, Peak: device.Rates{FP32: 1e12, FP16: 4e12}}
	tests := []struct {
		name         string
		flops, bytes int64
		precision    program.Precision
		want         time.Duration
	}{
		{"memory bound", 1e6, 1e9, program.FP32, 10 * time.Millisecond},  // 1 GB at 100 GB/s
		{"arithmetic bound", 1e9, 1e3, program.FP32, time.Millisecond},   // 1 GFLOP at 1 TFLOP/s
		{"tensor cores", 1e9, 1e3, program.FP16, 250 * time.Microsecond}, // at 4 TFLOP/s
		{"no bf16 tensor cores", 1e9, 0, program.BF16, time.Millisecond}, // computed in FP32
		{"nothing to do", 0, 0, program.FP32, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.InDelta(t, tt.want, g.Roofline(tt.flops, tt.bytes, tt.precision), 1)
		})
	}
	require.Zero(t, device.GPU{}.Roofline(1, 1, program.FP32), "unknown rates")
}

func TestRooflineGrowsWithWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := rapid.SampledFrom(device.Catalog()).Draw(t, "gpu")
		p := rapid.SampledFrom([]program.Precision{
			program.FP32, program.TF32, program.FP16, program.BF16,
			program.FP64,
		}).Draw(t, "precision")
		work := rapid.Int64Range(0, math.MaxInt32)
		flops, bytes := work.Draw(t, "flops"), work.Draw(t, "bytes")
		moreFlops, moreBytes := work.Draw(t, "more flops"), work.Draw(t, "more bytes")
		require.LessOrEqual(t, g.Roofline(flops, bytes, p), g.Roofline(flops+moreFlops, bytes+moreBytes, p))
	})
}
