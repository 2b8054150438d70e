package device

import (
	_ "embed" // the catalog
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
)

// Units of the columns in the catalog's tables.
const (
	MiB      = 1 << 20 // bytes
	gigabyte = 1e9     // bytes, as data sheets count bandwidth
	tera     = 1e12
)

// gpusCSV is the catalog of GPUs: one row for each GPU with the sources of its values. GPUs of one compute capability
// are together, the oldest first. GeForce GPUs accumulate in FP32 at half the speed of the workstation and server GPUs
// with the same chips; the chips of the GTX 16 series have no tensor cores. context_mib is a bare CUDA context,
// libraries_mib what PyTorch's libraries add to it, if runs of PyTorch showed that. Contexts are estimates, except for
// the H100's and the T4's, and calibration replaces them. The source "as the driver below the reference data takes"
// means the context in the reference records.
//
//go:embed gpus.csv
var gpusCSV string

// catalog lists the GPUs, and index maps normalized names to positions in it.
var catalog, index = parseCatalog(gpusCSV)

func parseCatalog(text string) ([]GPU, map[string]int) {
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		panic(err) // it is embedded
	}
	var gpus []GPU
	index := map[string]int{}
	columns := map[string]int{}
	for i, name := range rows[0] {
		columns[name] = i
	}
	for _, row := range rows[1:] {
		g := gpuOf(columns, row)
		for _, name := range append(g.Aliases, g.Name) {
			if other, taken := index[normalizeName(name)]; taken && other < len(gpus) {
				panic(fmt.Sprintf("device: %s and %s are both called %q", gpus[other].Name, g.Name, name))
			}
			index[normalizeName(name)] = len(gpus)
		}
		gpus = append(gpus, g)
	}
	// The driver gives variants with different memory the same name. Without a memory size, a name means the variant
	// that has it as an alias, else the first.
	for i, g := range gpus {
		if _, taken := index[normalizeName(g.Product)]; !taken {
			index[normalizeName(g.Product)] = i
		}
	}
	return gpus, index
}

// gpuOf returns the GPU of a row. An empty rate is zero.
func gpuOf(columns map[string]int, row []string) GPU {
	cell := func(name string) string { return row[columns[name]] }
	rate := func(name, exponent string) float64 {
		if cell(name) == "" {
			return 0
		}
		v, err := strconv.ParseFloat(cell(name)+exponent, 64)
		if err != nil {
			panic(fmt.Sprintf("device: %s: %s: %v", row[0], name, err))
		}
		return v
	}
	number := func(name string) int { return int(rate(name, "")) }
	return GPU{
		Name:          cell("name"),
		Product:       cell("product"),
		Aliases:       strings.Split(cell("aliases"), "|"),
		Generation:    cell("generation"),
		Capability:    Capability(rate("compute_capability", "e1")),
		SMs:           number("multiprocessors"),
		ThreadsPerSM:  number("threads_per_multiprocessor"),
		L2:            int64(number("l2_kib")) << 10,
		BoostMHz:      number("boost_mhz"),
		Memory:        int64(number("memory_bytes")),
		Bandwidth:     rate("bandwidth_gb_per_s", "e9"),
		LinkBandwidth: rate("link_gb_per_s", "e9"),
		UnifiedMemory: cell("unified") == "true",
		Peak: Rates{
			FP32: rate("fp32_tflops", "e12"),
			TF32: rate("tf32_tflops", "e12"),
			FP16: rate("fp16_tflops", "e12"),
			BF16: rate("bf16_tflops", "e12"),
			FP64: rate("fp64_tflops", "e12"),
		},
		Context:       int64(number("context_mib")+number("libraries_mib")) * MiB,
		Libraries:     int64(number("libraries_mib")) * MiB,
		ContextSource: cell("context_source"),
		Source:        cell("source"),
	}
}
