package device

import "fmt"

// A generation is the boards of one architecture and compute capability.
type generation struct {
	name         string
	capability   Capability
	threadsPerSM int
	boards       []GPU
}

// Units of the tables.
const (
	mib      = 1 << 20 // bytes
	gigabyte = 1e9     // bytes, as data sheets count bandwidth
	tera     = 1e12
)

// Where the figures for the context come from. No board was measured: the
// planner replaces them by calibration.
const (
	// estimatedAsReference marks what the reference data charged its boards.
	estimatedAsReference = "estimate; the driver below the reference data takes the same"
	estimated            = "estimate"
)

// The catalog, and where a folded name is found in it.
var catalog, index = build(
	kepler, pascalTesla, pascal, volta, turing, ampereTesla, ampere, ada, hopper, blackwellTesla, blackwell,
)

func build(generations ...generation) ([]GPU, map[string]int) {
	var gpus []GPU
	index := map[string]int{}
	for _, gen := range generations {
		for _, g := range gen.boards {
			g.Generation, g.Capability, g.ThreadsPerSM = gen.name, gen.capability, gen.threadsPerSM
			keys := map[string]bool{fold(g.Name): true, fold(g.Product): true}
			for _, alias := range g.Aliases {
				keys[fold(alias)] = true
			}
			for key := range keys {
				if other, taken := index[key]; taken {
					panic(fmt.Sprintf("device: %s and %s are both called %q", gpus[other].Name, g.Name, key))
				}
				index[key] = len(gpus)
			}
			gpus = append(gpus, g)
		}
	}
	return gpus, index
}

var kepler = generation{"Kepler", 37, 2048, []GPU{
	{
		Name: "k80", Product: "Tesla K80", Aliases: []string{"tesla-k80-12gb"},
		SMs: 13, BoostMHz: 875, Memory: 11_996_954_624, Bandwidth: 240 * gigabyte,
		Peak:    Rates{FP32: 4.37 * tera, FP64: 1.46 * tera},
		Context: 80 * mib, ContextSource: estimated,
		Source: "NVIDIA Tesla K80 board specification, one of the board's two GPUs; memory: deviceQuery, CUDA 10.2 driver, ECC on",
	},
}}

var pascalTesla = generation{"Pascal", 60, 2048, []GPU{
	{
		Name: "p100", Product: "Tesla P100-SXM2-16GB", Aliases: []string{"tesla-p100", "p100-16", "p100-16gb", "Tesla P100-PCIE-16GB"},
		SMs: 56, BoostMHz: 1480, Memory: 17_071_734_784, Bandwidth: 732 * gigabyte,
		Peak:    Rates{FP32: 10.6 * tera, FP64: 5.3 * tera},
		Context: 250 * mib, ContextSource: estimated,
		Source: "NVIDIA Tesla P100 data sheet (SXM2); memory: deviceQuery, CUDA 11.4 driver",
	},
}}

var pascal = generation{"Pascal", 61, 2048, []GPU{
	{
		Name: "gtx-1050-ti", Product: "NVIDIA GeForce GTX 1050 Ti", Aliases: []string{"1050-ti"},
		SMs: 6, BoostMHz: 1392, Memory: 4_233_035_776, Bandwidth: 112 * gigabyte,
		Peak:    Rates{FP32: 2.14 * tera, FP64: 0.067 * tera},
		Context: 60 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce GTX 1050 Ti product page; memory: deviceQuery, CUDA 10.1 driver",
	},
	{
		Name: "gtx-1080", Product: "NVIDIA GeForce GTX 1080", Aliases: []string{"1080"},
		SMs: 20, BoostMHz: 1733, Memory: 8_500_871_168, Bandwidth: 320 * gigabyte,
		Peak:    Rates{FP32: 8.87 * tera, FP64: 0.277 * tera},
		Context: 100 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce GTX 1080 whitepaper; memory: deviceQuery, CUDA 12.6 driver",
	},
}}

var volta = generation{"Volta", 70, 2048, []GPU{
	{
		Name: "v100-16", Product: "Tesla V100-SXM2-16GB", Aliases: []string{"v100-16gb", "tesla-v100-16gb"},
		SMs: 80, BoostMHz: 1530, Memory: 16_935_419_904, Bandwidth: 900 * gigabyte,
		Peak:    Rates{FP32: 15.7 * tera, FP16: 125 * tera, FP64: 7.8 * tera},
		Context: 300 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA V100 data sheet (SXM2); memory: typical under Linux",
	},
	{
		Name: "v100-32", Product: "Tesla V100-SXM2-32GB", Aliases: []string{"v100-32gb", "tesla-v100-32gb"},
		SMs: 80, BoostMHz: 1530, Memory: 34_079_637_504, Bandwidth: 900 * gigabyte,
		Peak:    Rates{FP32: 15.7 * tera, FP16: 125 * tera, FP64: 7.8 * tera},
		Context: 300 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA V100 data sheet (SXM2); memory: typical under Linux",
	},
}}

var turing = generation{"Turing", 75, 1024, []GPU{
	{
		// Its chip, TU117, has no tensor cores.
		Name: "gtx-1650", Product: "NVIDIA GeForce GTX 1650", Aliases: []string{"1650"},
		SMs: 14, BoostMHz: 1665, Memory: 4_093_509_632, Bandwidth: 128 * gigabyte,
		Peak:    Rates{FP32: 2.98 * tera, FP64: 0.093 * tera},
		Context: 80 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce GTX 1650 product page; memory: deviceQuery, CUDA 12.2 driver",
	},
	{
		Name: "t4", Product: "Tesla T4", Aliases: []string{"t4-16gb"},
		SMs: 40, BoostMHz: 1590, Memory: 15_828_320_256, Bandwidth: 320 * gigabyte,
		Peak:    Rates{FP32: 8.1 * tera, FP16: 65 * tera, FP64: 0.254 * tera},
		Context: 100 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA T4 data sheet; memory: typical under Linux",
	},
	{
		Name: "rtx-2080-ti", Product: "NVIDIA GeForce RTX 2080 Ti", Aliases: []string{"2080-ti"},
		SMs: 68, BoostMHz: 1545, Memory: 11_543_379_968, Bandwidth: 616 * gigabyte,
		Peak:    Rates{FP32: 13.4 * tera, FP16: 53.8 * tera, FP64: 0.42 * tera},
		Context: 160 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA Turing GPU architecture whitepaper (reference clock); memory: typical under Linux",
	},
	{
		Name: "quadro-rtx-6000", Product: "Quadro RTX 6000", Aliases: []string{"quadro-rtx6000-24gb"},
		SMs: 72, BoostMHz: 1770, Memory: 25_393_364_992, Bandwidth: 672 * gigabyte,
		Peak:    Rates{FP32: 16.3 * tera, FP16: 130.5 * tera, FP64: 0.51 * tera},
		Context: 170 * mib, ContextSource: estimated,
		Source: "NVIDIA Turing GPU architecture whitepaper; memory: 23.65 GiB in a TensorFlow device log, ECC off",
	},
}}

var ampereTesla = generation{"Ampere", 80, 2048, []GPU{
	{
		Name: "a100-40", Product: "NVIDIA A100-SXM4-40GB", Aliases: []string{"a100-40gb", "A100-SXM4-40GB"},
		SMs: 108, BoostMHz: 1410, Memory: 42_297_786_368, Bandwidth: 1555 * gigabyte,
		Peak:    Rates{FP32: 19.5 * tera, TF32: 156 * tera, FP16: 312 * tera, BF16: 312 * tera, FP64: 19.5 * tera},
		Context: 400 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA A100 data sheet; memory: typical under Linux",
	},
	{
		Name: "a100-80", Product: "NVIDIA A100-SXM4-80GB", Aliases: []string{"a100-80gb", "NVIDIA A100 80GB PCIe"},
		SMs: 108, BoostMHz: 1410, Memory: 84_987_740_160, Bandwidth: 2039 * gigabyte,
		Peak:    Rates{FP32: 19.5 * tera, TF32: 156 * tera, FP16: 312 * tera, BF16: 312 * tera, FP64: 19.5 * tera},
		Context: 400 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA A100 data sheet (SXM4); memory: typical under Linux",
	},
}}

// GeForce boards accumulate in FP32 at half the speed of the workstation and
// server boards with the same chips.
var ampere = generation{"Ampere", 86, 1536, []GPU{
	{
		Name: "rtx-3060", Product: "NVIDIA GeForce RTX 3060", Aliases: []string{"rtx-3060-12gb", "3060"},
		SMs: 28, BoostMHz: 1777, Memory: 12_622_168_064, Bandwidth: 360 * gigabyte,
		Peak:    Rates{FP32: 12.7 * tera, TF32: 12.7 * tera, FP16: 25.5 * tera, BF16: 25.5 * tera, FP64: 0.2 * tera},
		Context: 150 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA GeForce RTX 3060 product page, rates of GA10x at its clock; memory: typical under Linux",
	},
	{
		Name: "rtx-3070", Product: "NVIDIA GeForce RTX 3070", Aliases: []string{"rtx-3070-8gb", "3070"},
		SMs: 46, BoostMHz: 1725, Memory: 8_232_435_712, Bandwidth: 448 * gigabyte,
		Peak:    Rates{FP32: 20.3 * tera, TF32: 20.3 * tera, FP16: 40.6 * tera, BF16: 40.6 * tera, FP64: 0.317 * tera},
		Context: 190 * mib, ContextSource: estimated,
		Source: "NVIDIA Ampere GA102 GPU architecture whitepaper; memory: deviceQuery, CUDA 12.8 driver",
	},
	{
		Name: "rtx-3080", Product: "NVIDIA GeForce RTX 3080", Aliases: []string{"rtx-3080-10gb", "3080"},
		SMs: 68, BoostMHz: 1710, Memory: 10_494_541_824, Bandwidth: 760 * gigabyte,
		Peak:    Rates{FP32: 29.8 * tera, TF32: 29.8 * tera, FP16: 59.5 * tera, BF16: 59.5 * tera, FP64: 0.465 * tera},
		Context: 230 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA Ampere GA102 GPU architecture whitepaper; memory: typical under Linux",
	},
	{
		Name: "a10", Product: "NVIDIA A10", Aliases: []string{"a10-24gb"},
		SMs: 72, BoostMHz: 1695, Memory: 23_609_475_072, Bandwidth: 600 * gigabyte,
		Peak:    Rates{FP32: 31.2 * tera, TF32: 62.5 * tera, FP16: 125 * tera, BF16: 125 * tera, FP64: 0.488 * tera},
		Context: 250 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA A10 data sheet; memory: typical under Linux, ECC on",
	},
	{
		Name: "rtx-3090", Product: "NVIDIA GeForce RTX 3090", Aliases: []string{"rtx-3090-24gb", "3090"},
		SMs: 82, BoostMHz: 1695, Memory: 25_438_126_080, Bandwidth: 936 * gigabyte,
		Peak:    Rates{FP32: 35.6 * tera, TF32: 35.6 * tera, FP16: 71 * tera, BF16: 71 * tera, FP64: 0.556 * tera},
		Context: 260 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA Ampere GA102 GPU architecture whitepaper; memory: typical under Linux",
	},
	{
		Name: "a6000", Product: "NVIDIA RTX A6000", Aliases: []string{"a6000-48gb", "rtx-a6000-48gb"},
		SMs: 84, BoostMHz: 1800, Memory: 51_041_271_808, Bandwidth: 768 * gigabyte,
		Peak:    Rates{FP32: 38.7 * tera, TF32: 77.4 * tera, FP16: 154.8 * tera, BF16: 154.8 * tera, FP64: 0.605 * tera},
		Context: 270 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA Ampere GA102 GPU architecture whitepaper; memory: typical under Linux",
	},
}}

var ada = generation{"Ada Lovelace", 89, 1536, []GPU{
	{
		Name: "rtx-4070", Product: "NVIDIA GeForce RTX 4070", Aliases: []string{"rtx-4070-12gb", "4070"},
		SMs: 46, BoostMHz: 2475, Memory: 12_489_981_952, Bandwidth: 504 * gigabyte,
		Peak:    Rates{FP32: 29.1 * tera, TF32: 29.1 * tera, FP16: 58.3 * tera, BF16: 58.3 * tera, FP64: 0.455 * tera},
		Context: 200 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA GeForce RTX 4070 product page, rates of AD10x at its clock; memory: typical under Linux",
	},
	{
		Name: "l4", Product: "NVIDIA L4", Aliases: []string{"l4-24gb"},
		SMs: 58, BoostMHz: 2040, Memory: 23_664_525_312, Bandwidth: 300 * gigabyte,
		Peak:    Rates{FP32: 30.3 * tera, TF32: 60 * tera, FP16: 121 * tera, BF16: 121 * tera, FP64: 0.473 * tera},
		Context: 220 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA L4 data sheet, sparse rates halved; memory: typical under Linux, ECC on",
	},
	{
		Name: "rtx-4090", Product: "NVIDIA GeForce RTX 4090", Aliases: []string{"rtx-4090-24gb", "4090"},
		SMs: 128, BoostMHz: 2520, Memory: 25_386_352_640, Bandwidth: 1008 * gigabyte,
		Peak:    Rates{FP32: 82.6 * tera, TF32: 82.6 * tera, FP16: 165.2 * tera, BF16: 165.2 * tera, FP64: 1.29 * tera},
		Context: 380 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA Ada GPU architecture whitepaper; memory: typical under Linux",
	},
	{
		Name: "l40s", Product: "NVIDIA L40S", Aliases: []string{"l40s-48gb"},
		SMs: 142, BoostMHz: 2520, Memory: 47_697_362_944, Bandwidth: 864 * gigabyte,
		Peak:    Rates{FP32: 91.6 * tera, TF32: 183 * tera, FP16: 362 * tera, BF16: 362 * tera, FP64: 1.43 * tera},
		Context: 400 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA L40S data sheet; memory: typical under Linux, ECC on",
	},
}}

var hopper = generation{"Hopper", 90, 2048, []GPU{
	{
		Name: "h100", Product: "NVIDIA H100 80GB HBM3", Aliases: []string{"h100-80", "h100-80gb", "h100-sxm"},
		SMs: 132, BoostMHz: 1980, Memory: 85_028_700_160, Bandwidth: 3350 * gigabyte,
		Peak:    Rates{FP32: 67 * tera, TF32: 494.7 * tera, FP16: 989.4 * tera, BF16: 989.4 * tera, FP64: 67 * tera},
		Context: 500 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA H100 data sheet (SXM), sparse rates halved; memory: typical under Linux",
	},
	{
		Name: "h200", Product: "NVIDIA H200", Aliases: []string{"h200-141", "h200-141gb"},
		SMs: 132, BoostMHz: 1980, Memory: 150_109_093_888, Bandwidth: 4800 * gigabyte,
		Peak:    Rates{FP32: 67 * tera, TF32: 494.7 * tera, FP16: 989.4 * tera, BF16: 989.4 * tera, FP64: 67 * tera},
		Context: 500 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA H200 data sheet (SXM), sparse rates halved; memory: typical under Linux",
	},
}}

var blackwellTesla = generation{"Blackwell", 100, 2048, []GPU{
	{
		Name: "b200", Product: "NVIDIA B200", Aliases: []string{"b200-180gb"},
		SMs: 148, BoostMHz: 1965, Memory: 191_512_510_464, Bandwidth: 7700 * gigabyte,
		Peak:    Rates{FP32: 75 * tera, TF32: 1100 * tera, FP16: 2250 * tera, BF16: 2250 * tera, FP64: 37 * tera},
		Context: 600 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA HGX B200 data sheet, per GPU, sparse rates halved; memory: typical under Linux",
	},
}}

var blackwell = generation{"Blackwell", 120, 1536, []GPU{
	{
		Name: "rtx-5060-ti", Product: "NVIDIA GeForce RTX 5060 Ti", Aliases: []string{"rtx-5060-ti-16gb", "5060-ti"},
		SMs: 36, BoostMHz: 2572, Memory: 16_615_079_936, Bandwidth: 448 * gigabyte,
		Peak:    Rates{FP32: 23.7 * tera, TF32: 23.7 * tera, FP16: 47.4 * tera, BF16: 47.4 * tera, FP64: 0.37 * tera},
		Context: 190 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA GeForce RTX 5060 Ti (16 GB) product page, rates of GB20x at its clock; memory: typical under Linux",
	},
	{
		Name: "rtx-5090", Product: "NVIDIA GeForce RTX 5090", Aliases: []string{"rtx-5090-32gb", "5090"},
		SMs: 170, BoostMHz: 2407, Memory: 33_676_525_568, Bandwidth: 1792 * gigabyte,
		Peak:    Rates{FP32: 104.8 * tera, TF32: 104.8 * tera, FP16: 209.5 * tera, BF16: 209.5 * tera, FP64: 1.64 * tera},
		Context: 480 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA RTX Blackwell GPU architecture whitepaper; memory: typical under Linux",
	},
}}
