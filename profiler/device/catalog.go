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

// Where the figures for the context come from. But for the T4 no board was measured: the
// planner replaces them by calibration.
const (
	// estimatedAsReference marks what the reference data charged its boards.
	estimatedAsReference = "estimate; the driver below the reference data takes the same"
	estimated            = "estimate"
	// t4Runs is what a real board showed.
	t4Runs = "42 runs with PyTorch 2.14, of whose device bytes 140.9 MiB in 36 and 141.0 in 6 were not reserved " +
		"(Anassbzdd/fitcheck@1e72b19a, t4-sweep-2026-09-15)"
)

// The catalog, and where a folded name is found in it.
var catalog, index = build(
	kepler, pascalTesla, pascal, volta, turing, ampereTesla, ampere, ampereJetson, ada, hopper, blackwellTesla,
	blackwellUltra, blackwell, blackwellSpark,
)

func build(generations ...generation) ([]GPU, map[string]int) {
	var gpus []GPU
	index := map[string]int{}
	for _, gen := range generations {
		for _, g := range gen.boards {
			g.Generation, g.Capability, g.ThreadsPerSM = gen.name, gen.capability, gen.threadsPerSM
			keys := map[string]bool{fold(g.Name): true}
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
	// The driver calls variants of different memory the same: without the memory a name is
	// that of the one whose alias it is, or else of the first.
	for i, g := range gpus {
		if _, taken := index[fold(g.Product)]; !taken {
			index[fold(g.Product)] = i
		}
	}
	return gpus, index
}

var kepler = generation{"Kepler", 37, 2048, []GPU{
	{
		Name: "k80", Product: "Tesla K80", Aliases: []string{"tesla-k80-12gb"},
		SMs: 13, L2: 1536 << 10, BoostMHz: 875,
		Memory: 11_996_954_624, Bandwidth: 240 * gigabyte, Link: 15.75 * gigabyte,
		Peak:    Rates{FP32: 4.37 * tera, FP64: 1.46 * tera},
		Context: 80 * mib, ContextSource: estimated,
		Source: "NVIDIA Tesla K80 board specification, one of the board's two GPUs; memory: deviceQuery, CUDA 10.2 driver, ECC on",
	},
}}

var pascalTesla = generation{"Pascal", 60, 2048, []GPU{
	{
		Name: "p100", Product: "Tesla P100-SXM2-16GB", Aliases: []string{"tesla-p100", "p100-16", "p100-16gb", "Tesla P100-PCIE-16GB"},
		SMs: 56, L2: 4 * mib, BoostMHz: 1480,
		Memory: 17_071_734_784, Bandwidth: 732 * gigabyte, Link: 80 * gigabyte,
		Peak:    Rates{FP32: 10.6 * tera, FP64: 5.3 * tera},
		Context: 250 * mib, ContextSource: estimated,
		Source: "NVIDIA Tesla P100 data sheet (SXM2); memory: deviceQuery, CUDA 11.4 driver",
	},
}}

var pascal = generation{"Pascal", 61, 2048, []GPU{
	{
		Name: "gtx-1050-ti", Product: "NVIDIA GeForce GTX 1050 Ti", Aliases: []string{"1050-ti"},
		SMs: 6, L2: 1 * mib, BoostMHz: 1392,
		Memory: 4_233_035_776, Bandwidth: 112 * gigabyte, Link: 15.75 * gigabyte,
		Peak:    Rates{FP32: 2.14 * tera, FP64: 0.067 * tera},
		Context: 60 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce GTX 1050 Ti product page; memory: deviceQuery, CUDA 10.1 driver",
	},
	{
		Name: "gtx-1080", Product: "NVIDIA GeForce GTX 1080", Aliases: []string{"1080"},
		SMs: 20, L2: 2 * mib, BoostMHz: 1733,
		Memory: 8_500_871_168, Bandwidth: 320 * gigabyte, Link: 15.75 * gigabyte,
		Peak:    Rates{FP32: 8.87 * tera, FP64: 0.277 * tera},
		Context: 100 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce GTX 1080 whitepaper; memory: deviceQuery, CUDA 12.6 driver",
	},
}}

var volta = generation{"Volta", 70, 2048, []GPU{
	{
		Name: "v100-16", Product: "Tesla V100-SXM2-16GB", Aliases: []string{"v100-16gb", "tesla-v100-16gb", "V100-SXM2-16GB"},
		SMs: 80, L2: 6 * mib, BoostMHz: 1530,
		Memory: 16_935_419_904, Bandwidth: 900 * gigabyte, Link: 150 * gigabyte,
		Peak:    Rates{FP32: 15.7 * tera, FP16: 125 * tera, FP64: 7.8 * tera},
		Context: 300 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA V100 data sheet (SXM2); memory: typical under Linux",
	},
	{
		Name: "v100-32", Product: "Tesla V100-SXM2-32GB", Aliases: []string{"v100-32gb", "tesla-v100-32gb", "V100-SXM2-32GB"},
		SMs: 80, L2: 6 * mib, BoostMHz: 1530,
		Memory: 34_079_637_504, Bandwidth: 900 * gigabyte, Link: 150 * gigabyte,
		Peak:    Rates{FP32: 15.7 * tera, FP16: 125 * tera, FP64: 7.8 * tera},
		Context: 300 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA V100 data sheet (SXM2); memory: typical under Linux",
	},
}}

var turing = generation{"Turing", 75, 1024, []GPU{
	{
		// Its chip, TU117, has no tensor cores.
		Name: "gtx-1650", Product: "NVIDIA GeForce GTX 1650", Aliases: []string{"1650"},
		SMs: 14, L2: 1 * mib, BoostMHz: 1665,
		Memory: 4_093_509_632, Bandwidth: 128 * gigabyte, Link: 15.75 * gigabyte,
		Peak:    Rates{FP32: 2.98 * tera, FP64: 0.093 * tera},
		Context: 80 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce GTX 1650 product page; memory: deviceQuery, CUDA 12.2 driver",
	},
	{
		Name: "rtx-2060", Product: "NVIDIA GeForce RTX 2060", Aliases: []string{"rtx-2060-6gb", "2060"},
		SMs: 30, L2: 3 * mib, BoostMHz: 1680,
		Memory: 5_929 * mib, Bandwidth: 336 * gigabyte, Link: 15.75 * gigabyte,
		Peak:    Rates{FP32: 6.45 * tera, FP16: 25.8 * tera, FP64: 0.202 * tera},
		Context: 100 * mib, ContextSource: estimated,
		Source: "NVIDIA Turing GPU architecture whitepaper, rates of TU106 at its clock; memory: 5.79 GiB in " +
			"messages of PyTorch under Linux",
	},
	{
		Name: "t4", Product: "Tesla T4", Aliases: []string{"t4-16gb"},
		SMs: 40, L2: 4 * mib, BoostMHz: 1590,
		Memory: 15_828_320_256, Bandwidth: 320 * gigabyte, Link: 15.75 * gigabyte,
		Peak:    Rates{FP32: 8.1 * tera, FP16: 65 * tera, FP64: 0.254 * tera},
		Context: 141 * mib, ContextSource: t4Runs,
		Source: "NVIDIA T4 data sheet; memory: typical under Linux",
	},
	{
		Name: "rtx-2070-super", Product: "NVIDIA GeForce RTX 2070 SUPER", Aliases: []string{"rtx-2070-super-8gb", "2070-super"},
		SMs: 40, L2: 4 * mib, BoostMHz: 1770,
		Memory: 8_363_442_176, Bandwidth: 448 * gigabyte, Link: 15.75 * gigabyte,
		Peak:    Rates{FP32: 9.06 * tera, FP16: 36.2 * tera, FP64: 0.283 * tera},
		Context: 110 * mib, ContextSource: estimated,
		Source: "NVIDIA Turing GPU architecture whitepaper, rates of TU104 at its clock, which the driver reports with its multiprocessors (mifth/mifthtools issue 34); memory: 7.79 GiB in a message of PyTorch under Linux (xw-hu/Mask-ShadowGAN issue 14)",
	},
	{
		Name: "rtx-2080-ti", Product: "NVIDIA GeForce RTX 2080 Ti", Aliases: []string{"2080-ti"},
		SMs: 68, L2: 5632 << 10, BoostMHz: 1545,
		Memory: 11_543_379_968, Bandwidth: 616 * gigabyte, Link: 15.75 * gigabyte,
		Peak:    Rates{FP32: 13.4 * tera, FP16: 53.8 * tera, FP64: 0.42 * tera},
		Context: 160 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA Turing GPU architecture whitepaper (reference clock); memory: typical under Linux",
	},
	{
		Name: "quadro-rtx-6000", Product: "Quadro RTX 6000", Aliases: []string{"quadro-rtx6000-24gb"},
		SMs: 72, L2: 6 * mib, BoostMHz: 1770,
		Memory: 25_393_364_992, Bandwidth: 672 * gigabyte, Link: 15.75 * gigabyte,
		Peak:    Rates{FP32: 16.3 * tera, FP16: 130.5 * tera, FP64: 0.51 * tera},
		Context: 170 * mib, ContextSource: estimated,
		Source: "NVIDIA Turing GPU architecture whitepaper; memory: 23.65 GiB in a TensorFlow device log, ECC off",
	},
	{
		Name: "quadro-rtx-8000", Product: "Quadro RTX 8000", Aliases: []string{"quadro-rtx8000-48gb", "rtx-8000", "NVIDIA Quadro RTX 8000"},
		SMs: 72, L2: 6 * mib, BoostMHz: 1770,
		Memory: 48_601 * mib, Bandwidth: 672 * gigabyte, Link: 15.75 * gigabyte,
		Peak:    Rates{FP32: 16.3 * tera, FP16: 130.5 * tera, FP64: 0.51 * tera},
		Context: 170 * mib, ContextSource: estimated,
		Source: "NVIDIA Turing GPU architecture whitepaper; multiprocessors and memory as PyTorch reports them in users' logs",
	},
}}

var ampereTesla = generation{"Ampere", 80, 2048, []GPU{
	{
		Name: "a30", Product: "NVIDIA A30", Aliases: []string{"a30-24gb"},
		SMs: 56, L2: 24 * mib, BoostMHz: 1440,
		Memory: 25_264_390_144, Bandwidth: 933 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 10.3 * tera, TF32: 82.6 * tera, FP16: 165 * tera, BF16: 165 * tera, FP64: 10.3 * tera},
		Context: 260 * mib, ContextSource: estimated,
		Source: "NVIDIA A30 data sheet, whose rate in FP32 is that of 56 multiprocessors at this clock; as many are reported; memory: 23.53 GiB in a message of PyTorch under Linux, ECC on (google/RB-Modulation issue 5)",
	},
	{
		Name: "a100-40", Product: "NVIDIA A100-SXM4-40GB", Aliases: []string{"a100-40gb", "A100-SXM4-40GB"},
		SMs: 108, L2: 40 * mib, BoostMHz: 1410,
		Memory: 42_297_786_368, Bandwidth: 1555 * gigabyte, Link: 300 * gigabyte,
		Peak:    Rates{FP32: 19.5 * tera, TF32: 156 * tera, FP16: 312 * tera, BF16: 312 * tera, FP64: 19.5 * tera},
		Context: 400 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA A100 data sheet; memory: typical under Linux",
	},
	{
		Name: "a100-40-pcie", Product: "NVIDIA A100-PCIE-40GB", Aliases: []string{"a100-pcie", "a100-pcie-40gb"},
		SMs: 108, L2: 40 * mib, BoostMHz: 1410,
		Memory: 42_297_786_368, Bandwidth: 1555 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 19.5 * tera, TF32: 156 * tera, FP16: 312 * tera, BF16: 312 * tera, FP64: 19.5 * tera},
		Context: 400 * mib, ContextSource: estimated,
		Source: "NVIDIA A100 data sheet (PCIe); memory: as the SXM4 board's of this size",
	},
	{
		Name: "a100-80", Product: "NVIDIA A100-SXM4-80GB", Aliases: []string{"a100-80gb"},
		SMs: 108, L2: 40 * mib, BoostMHz: 1410,
		Memory: 84_987_740_160, Bandwidth: 2039 * gigabyte, Link: 300 * gigabyte,
		Peak:    Rates{FP32: 19.5 * tera, TF32: 156 * tera, FP16: 312 * tera, BF16: 312 * tera, FP64: 19.5 * tera},
		Context: 400 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA A100 data sheet (SXM4); memory: typical under Linux",
	},
	{
		Name: "a100-80-pcie", Product: "NVIDIA A100 80GB PCIe", Aliases: []string{"a100-pcie-80gb"},
		SMs: 108, L2: 40 * mib, BoostMHz: 1410,
		Memory: 84_987_740_160, Bandwidth: 1935 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 19.5 * tera, TF32: 156 * tera, FP16: 312 * tera, BF16: 312 * tera, FP64: 19.5 * tera},
		Context: 400 * mib, ContextSource: estimated,
		Source: "NVIDIA A100 data sheet (PCIe); memory: as the SXM4 board's of this size",
	},
}}

var ampereJetson = generation{"Ampere", 87, 1536, []GPU{
	{
		Name: "jetson-agx-orin", Product: "Orin", Aliases: []string{"jetson-orin", "jetson-agx-orin-64gb", "agx-orin"},
		SMs: 16, L2: 4 * mib, BoostMHz: 1300,
		Memory: 65_893_089_280, Bandwidth: 204.8 * gigabyte,
		Peak:    Rates{FP32: 5.33 * tera, TF32: 21.3 * tera, FP16: 42.6 * tera, BF16: 42.6 * tera, FP64: 0.083 * tera},
		Context: 90 * mib, ContextSource: estimated,
		Source: "NVIDIA Jetson AGX Orin 64 GB data sheet, sparse rates halved; multiprocessors, threads, clock and memory as the driver reports them (tmcdonell/cuda issue 77; deviceQuery of CUDA 12.6); the memory is shared with programs on the CPU",
	},
}}

// GeForce boards accumulate in FP32 at half the speed of the workstation and
// server boards with the same chips.
var ampere = generation{"Ampere", 86, 1536, []GPU{
	{
		Name: "rtx-3060", Product: "NVIDIA GeForce RTX 3060", Aliases: []string{"rtx-3060-12gb", "3060"},
		SMs: 28, L2: 2304 << 10, BoostMHz: 1777,
		Memory: 12_622_168_064, Bandwidth: 360 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 12.7 * tera, TF32: 12.7 * tera, FP16: 25.5 * tera, BF16: 25.5 * tera, FP64: 0.2 * tera},
		Context: 150 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA GeForce RTX 3060 product page, rates of GA10x at its clock; memory: typical under Linux",
	},
	{
		Name: "rtx-3060-laptop", Product: "NVIDIA GeForce RTX 3060 Laptop GPU", Aliases: []string{"3060-laptop"},
		SMs: 30, L2: 3 * mib, BoostMHz: 1703,
		Memory: 5_938 * mib, Bandwidth: 336 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 13.1 * tera, TF32: 13.1 * tera, FP16: 26.2 * tera, BF16: 26.2 * tera, FP64: 0.204 * tera},
		Context: 150 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 30 series laptops, rates of GA10x at the largest boost clock of the product " +
			"page, below which a laptop may stay; memory: estimate, as the RTX 2060's",
	},
	{
		Name: "rtx-3060-ti", Product: "NVIDIA GeForce RTX 3060 Ti", Aliases: []string{"rtx-3060-ti-8gb", "3060-ti"},
		SMs: 38, L2: 4 * mib, BoostMHz: 1665,
		Memory: 8_232_435_712, Bandwidth: 448 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 16.2 * tera, TF32: 16.2 * tera, FP16: 32.4 * tera, BF16: 32.4 * tera, FP64: 0.253 * tera},
		Context: 170 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 3060 Ti product page, rates of GA10x at its clock; memory: as the RTX 3070's, of the same chip and size",
	},
	{
		Name: "rtx-3070-laptop", Product: "NVIDIA GeForce RTX 3070 Laptop GPU", Aliases: []string{"3070-laptop"},
		SMs: 40, L2: 4 * mib, BoostMHz: 1620,
		Memory: 8_232_435_712, Bandwidth: 448 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 16.6 * tera, TF32: 16.6 * tera, FP16: 33.2 * tera, BF16: 33.2 * tera, FP64: 0.259 * tera},
		Context: 175 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 30 series laptops, rates of GA10x at the largest boost clock of the product " +
			"page, below which a laptop may stay; memory: as the desktop boards' of this size",
	},
	{
		Name: "a4000", Product: "NVIDIA RTX A4000", Aliases: []string{"a4000-16gb", "rtx-a4000-16gb"},
		SMs: 48, L2: 4 * mib, BoostMHz: 1560,
		Memory: 16_107 * mib, Bandwidth: 448 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 19.2 * tera, TF32: 38.3 * tera, FP16: 76.7 * tera, BF16: 76.7 * tera, FP64: 0.3 * tera},
		Context: 195 * mib, ContextSource: estimated,
		Source: "NVIDIA RTX A4000 data sheet, sparse rates halved; memory: 15.73 GiB in messages of PyTorch under " +
			"Linux, ECC off",
	},
	{
		Name: "rtx-3070", Product: "NVIDIA GeForce RTX 3070", Aliases: []string{"rtx-3070-8gb", "3070"},
		SMs: 46, L2: 4 * mib, BoostMHz: 1725,
		Memory: 8_232_435_712, Bandwidth: 448 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 20.3 * tera, TF32: 20.3 * tera, FP16: 40.6 * tera, BF16: 40.6 * tera, FP64: 0.317 * tera},
		Context: 190 * mib, ContextSource: estimated,
		Source: "NVIDIA Ampere GA102 GPU architecture whitepaper; memory: deviceQuery, CUDA 12.8 driver",
	},
	{
		Name: "rtx-3080-laptop", Product: "NVIDIA GeForce RTX 3080 Laptop GPU", Aliases: []string{"3080-laptop"},
		SMs: 48, L2: 4 * mib, BoostMHz: 1710,
		Memory: 16_107 * mib, Bandwidth: 448 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 21.0 * tera, TF32: 21.0 * tera, FP16: 42.0 * tera, BF16: 42.0 * tera, FP64: 0.328 * tera},
		Context: 195 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 30 series laptops (16 GB), rates of GA10x at the largest boost clock of the " +
			"product page, below which a laptop may stay; memory: as the RTX A4000's",
	},
	{
		Name: "a5000", Product: "NVIDIA RTX A5000", Aliases: []string{"a5000-24gb", "rtx-a5000-24gb"},
		SMs: 64, L2: 6 * mib, BoostMHz: 1695,
		Memory: 25_402_343_424, Bandwidth: 768 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 27.8 * tera, TF32: 55.5 * tera, FP16: 111.1 * tera, BF16: 111.1 * tera, FP64: 0.434 * tera},
		Context: 220 * mib, ContextSource: estimated,
		Source: "NVIDIA RTX A5000 data sheet, sparse rates halved, whose rate in FP32 is that of 64 multiprocessors at this clock; multiprocessors and memory as the driver reports them under Linux, ECC off; newer drivers leave 24114 to 24138 MiB",
	},
	{
		Name: "rtx-3080", Product: "NVIDIA GeForce RTX 3080", Aliases: []string{"rtx-3080-10gb", "3080"},
		SMs: 68, L2: 5 * mib, BoostMHz: 1710,
		Memory: 10_494_541_824, Bandwidth: 760 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 29.8 * tera, TF32: 29.8 * tera, FP16: 59.5 * tera, BF16: 59.5 * tera, FP64: 0.465 * tera},
		Context: 230 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA Ampere GA102 GPU architecture whitepaper; memory: typical under Linux",
	},
	{
		Name: "rtx-3080-12", Product: "NVIDIA GeForce RTX 3080", Aliases: []string{"rtx-3080-12gb"},
		SMs: 70, L2: 6 * mib, BoostMHz: 1710,
		Memory: 12_622_168_064, Bandwidth: 912 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 30.6 * tera, TF32: 30.6 * tera, FP16: 61.3 * tera, BF16: 61.3 * tera, FP64: 0.479 * tera},
		Context: 230 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 3080 (12 GB) product page, rates of GA102 at its clock; memory: as the RTX " +
			"3060's of this size",
	},
	{
		Name: "a10", Product: "NVIDIA A10", Aliases: []string{"a10-24gb"},
		SMs: 72, L2: 6 * mib, BoostMHz: 1695,
		Memory: 23_609_475_072, Bandwidth: 600 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 31.2 * tera, TF32: 62.5 * tera, FP16: 125 * tera, BF16: 125 * tera, FP64: 0.488 * tera},
		Context: 250 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA A10 data sheet; memory: typical under Linux, ECC on",
	},
	{
		Name: "rtx-3080-ti", Product: "NVIDIA GeForce RTX 3080 Ti", Aliases: []string{"rtx-3080-ti-12gb", "3080-ti"},
		SMs: 80, L2: 6 * mib, BoostMHz: 1665,
		Memory: 12_622_168_064, Bandwidth: 912 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 34.1 * tera, TF32: 34.1 * tera, FP16: 68.2 * tera, BF16: 68.2 * tera, FP64: 0.533 * tera},
		Context: 240 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 3080 Ti product page, rates of GA102 at its clock; memory: as the RTX 3060's " +
			"of this size",
	},
	{
		Name: "a10g", Product: "NVIDIA A10G", Aliases: []string{"a10g-24gb"},
		SMs: 80, L2: 6 * mib, BoostMHz: 1710,
		Memory: 22_587 * mib, Bandwidth: 600 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 35 * tera, TF32: 35 * tera, FP16: 70 * tera, BF16: 70 * tera, FP64: 0.547 * tera},
		Context: 260 * mib, ContextSource: estimated,
		Source: "NVIDIA A10G data sheet; multiprocessors and memory as PyTorch 2.15 reports them on AWS, ECC on",
	},
	{
		Name: "rtx-3090", Product: "NVIDIA GeForce RTX 3090", Aliases: []string{"rtx-3090-24gb", "3090"},
		SMs: 82, L2: 6 * mib, BoostMHz: 1695,
		Memory: 25_438_126_080, Bandwidth: 936 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 35.6 * tera, TF32: 35.6 * tera, FP16: 71 * tera, BF16: 71 * tera, FP64: 0.556 * tera},
		Context: 260 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA Ampere GA102 GPU architecture whitepaper; memory: typical under Linux",
	},
	{
		Name: "a40", Product: "NVIDIA A40", Aliases: []string{"a40-48gb"},
		SMs: 84, L2: 6 * mib, BoostMHz: 1740,
		Memory: 47_620_030_464, Bandwidth: 696 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 37.4 * tera, TF32: 74.8 * tera, FP16: 149.7 * tera, BF16: 149.7 * tera, FP64: 0.585 * tera},
		Context: 270 * mib, ContextSource: estimated,
		Source: "NVIDIA A40 data sheet, sparse rates halved; memory: total capacity in PyTorch's messages under Linux, ECC on",
	},
	{
		Name: "a6000", Product: "NVIDIA RTX A6000", Aliases: []string{"a6000-48gb", "rtx-a6000-48gb"},
		SMs: 84, L2: 6 * mib, BoostMHz: 1800,
		Memory: 51_041_271_808, Bandwidth: 768 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 38.7 * tera, TF32: 77.4 * tera, FP16: 154.8 * tera, BF16: 154.8 * tera, FP64: 0.605 * tera},
		Context: 270 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA Ampere GA102 GPU architecture whitepaper; memory: typical under Linux",
	},
	{
		Name: "rtx-3090-ti", Product: "NVIDIA GeForce RTX 3090 Ti", Aliases: []string{"rtx-3090-ti-24gb", "3090-ti"},
		SMs: 84, L2: 6 * mib, BoostMHz: 1860,
		Memory: 24_114 * mib, Bandwidth: 1008 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 40 * tera, TF32: 40 * tera, FP16: 80 * tera, BF16: 80 * tera, FP64: 0.625 * tera},
		Context: 270 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 3090 Ti product page, rates of GA102 at its clock; multiprocessors and memory as PyTorch reports them in a user's log",
	},
}}

var ada = generation{"Ada Lovelace", 89, 1536, []GPU{
	{
		Name: "rtx-4060-laptop", Product: "NVIDIA GeForce RTX 4060 Laptop GPU", Aliases: []string{"4060-laptop"},
		SMs: 24, L2: 32 * mib, BoostMHz: 2370,
		Memory: 8_192_524_288, Bandwidth: 256 * gigabyte, Link: 15.75 * gigabyte,
		Peak:    Rates{FP32: 14.6 * tera, TF32: 14.6 * tera, FP16: 29.1 * tera, BF16: 29.1 * tera, FP64: 0.228 * tera},
		Context: 155 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 40 series laptops, rates of AD10x at the largest boost clock of the product " +
			"page, below which a laptop may stay; memory: as the desktop boards' of this size",
	},
	{
		Name: "rtx-4060", Product: "NVIDIA GeForce RTX 4060", Aliases: []string{"rtx-4060-8gb", "4060"},
		SMs: 24, L2: 24 * mib, BoostMHz: 2460,
		Memory: 8_192_524_288, Bandwidth: 272 * gigabyte, Link: 15.75 * gigabyte,
		Peak:    Rates{FP32: 15.1 * tera, TF32: 15.1 * tera, FP16: 30.2 * tera, BF16: 30.2 * tera, FP64: 0.236 * tera},
		Context: 155 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 4060 product page, rates of AD10x at its clock; memory: total capacity in PyTorch's messages under Linux",
	},
	{
		Name: "rtx-4070-laptop", Product: "NVIDIA GeForce RTX 4070 Laptop GPU", Aliases: []string{"4070-laptop"},
		SMs: 36, L2: 32 * mib, BoostMHz: 2175,
		Memory: 8_192_524_288, Bandwidth: 256 * gigabyte, Link: 15.75 * gigabyte,
		Peak:    Rates{FP32: 20.0 * tera, TF32: 20.0 * tera, FP16: 40.1 * tera, BF16: 40.1 * tera, FP64: 0.313 * tera},
		Context: 180 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 40 series laptops, rates of AD10x at the largest boost clock of the product " +
			"page, below which a laptop may stay; memory: as the desktop boards' of this size",
	},
	{
		Name: "rtx-4060-ti-8", Product: "NVIDIA GeForce RTX 4060 Ti",
		Aliases: []string{"rtx-4060-ti-8gb", "4060-ti-8gb", "NVIDIA GeForce RTX 4060 Ti 8GB"},
		SMs:     34, L2: 32 * mib, BoostMHz: 2535,
		Memory: 8_192_524_288, Bandwidth: 288 * gigabyte, Link: 15.75 * gigabyte,
		Peak:    Rates{FP32: 22.1 * tera, TF32: 22.1 * tera, FP16: 44.1 * tera, BF16: 44.1 * tera, FP64: 0.345 * tera},
		Context: 175 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 4060 Ti product page, rates of AD10x at its clock; memory: as the RTX 4060's of this size",
	},
	{
		Name: "rtx-4060-ti-16", Product: "NVIDIA GeForce RTX 4060 Ti",
		Aliases: []string{"rtx-4060-ti-16gb", "4060-ti", "4060-ti-16gb", "rtx-4060-ti", "NVIDIA GeForce RTX 4060 Ti"},
		SMs:     34, L2: 32 * mib, BoostMHz: 2535,
		Memory: 16_696_475_648, Bandwidth: 288 * gigabyte, Link: 15.75 * gigabyte,
		Peak:    Rates{FP32: 22.1 * tera, TF32: 22.1 * tera, FP16: 44.1 * tera, BF16: 44.1 * tera, FP64: 0.345 * tera},
		Context: 175 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 4060 Ti product page, rates of AD10x at its clock; memory: total capacity in PyTorch's messages under Linux",
	},
	{
		Name: "rtx-4070", Product: "NVIDIA GeForce RTX 4070", Aliases: []string{"rtx-4070-12gb", "4070"},
		SMs: 46, L2: 36 * mib, BoostMHz: 2475,
		Memory: 12_489_981_952, Bandwidth: 504 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 29.1 * tera, TF32: 29.1 * tera, FP16: 58.3 * tera, BF16: 58.3 * tera, FP64: 0.455 * tera},
		Context: 200 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA GeForce RTX 4070 product page, rates of AD10x at its clock; memory: typical under Linux",
	},
	{
		Name: "l4", Product: "NVIDIA L4", Aliases: []string{"l4-24gb"},
		SMs: 58, L2: 48 * mib, BoostMHz: 2040,
		Memory: 23_664_525_312, Bandwidth: 300 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 30.3 * tera, TF32: 60 * tera, FP16: 121 * tera, BF16: 121 * tera, FP64: 0.473 * tera},
		Context: 220 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA L4 data sheet, sparse rates halved; memory: typical under Linux, ECC on",
	},
	{
		Name: "rtx-4080-laptop", Product: "NVIDIA GeForce RTX 4080 Laptop GPU", Aliases: []string{"4080-laptop"},
		SMs: 58, L2: 48 * mib, BoostMHz: 2280,
		Memory: 12_489_981_952, Bandwidth: 432 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 33.9 * tera, TF32: 33.9 * tera, FP16: 67.7 * tera, BF16: 67.7 * tera, FP64: 0.529 * tera},
		Context: 220 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 40 series laptops, rates of AD10x at the largest boost clock of the product " +
			"page, below which a laptop may stay; memory: as the desktop boards' of this size",
	},
	{
		Name: "rtx-4070-super", Product: "NVIDIA GeForce RTX 4070 SUPER",
		Aliases: []string{"rtx-4070-super-12gb", "4070-super"},
		SMs:     56, L2: 48 * mib, BoostMHz: 2475,
		Memory: 12_489_981_952, Bandwidth: 504 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 35.5 * tera, TF32: 35.5 * tera, FP16: 71.0 * tera, BF16: 71.0 * tera, FP64: 0.554 * tera},
		Context: 220 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 4070 SUPER product page, rates of AD10x at its clock; memory: as the RTX " +
			"4070's of this size",
	},
	{
		Name: "rtx-4090-laptop", Product: "NVIDIA GeForce RTX 4090 Laptop GPU", Aliases: []string{"4090-laptop"},
		SMs: 76, L2: 64 * mib, BoostMHz: 2040,
		Memory: 16_696_475_648, Bandwidth: 576 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 39.7 * tera, TF32: 39.7 * tera, FP16: 79.4 * tera, BF16: 79.4 * tera, FP64: 0.620 * tera},
		Context: 265 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 40 series laptops, rates of AD10x at the largest boost clock of the product " +
			"page, below which a laptop may stay; memory: as the desktop boards' of this size",
	},
	{
		Name: "rtx-4070-ti-super", Product: "NVIDIA GeForce RTX 4070 Ti SUPER", Aliases: []string{"rtx-4070-ti-super-16gb", "4070-ti-super"},
		SMs: 66, L2: 48 * mib, BoostMHz: 2610,
		Memory: 16_696_475_648, Bandwidth: 672 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 44.1 * tera, TF32: 44.1 * tera, FP16: 88.2 * tera, BF16: 88.2 * tera, FP64: 0.689 * tera},
		Context: 240 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 4070 Ti SUPER product page, rates of AD10x at its clock; memory: as the RTX 4060 Ti's of this size",
	},
	{
		Name: "rtx-4080", Product: "NVIDIA GeForce RTX 4080", Aliases: []string{"rtx-4080-16gb", "4080"},
		SMs: 76, L2: 64 * mib, BoostMHz: 2505,
		Memory: 16_696_475_648, Bandwidth: 716.8 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 48.7 * tera, TF32: 48.7 * tera, FP16: 97.5 * tera, BF16: 97.5 * tera, FP64: 0.761 * tera},
		Context: 265 * mib, ContextSource: estimated,
		Source: "NVIDIA Ada GPU architecture whitepaper; memory: as the RTX 4060 Ti's of this size",
	},
	{
		Name: "rtx-4080-super", Product: "NVIDIA GeForce RTX 4080 SUPER", Aliases: []string{"rtx-4080-super-16gb", "4080-super"},
		SMs: 80, L2: 64 * mib, BoostMHz: 2550,
		Memory: 16_696_475_648, Bandwidth: 736 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 52.2 * tera, TF32: 52.2 * tera, FP16: 104.4 * tera, BF16: 104.4 * tera, FP64: 0.816 * tera},
		Context: 270 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 4080 SUPER product page, rates of AD10x at its clock; memory: as the RTX 4060 Ti's of this size",
	},
	{
		Name: "rtx-4090", Product: "NVIDIA GeForce RTX 4090", Aliases: []string{"rtx-4090-24gb", "4090"},
		SMs: 128, L2: 72 * mib, BoostMHz: 2520,
		Memory: 25_386_352_640, Bandwidth: 1008 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 82.6 * tera, TF32: 82.6 * tera, FP16: 165.2 * tera, BF16: 165.2 * tera, FP64: 1.29 * tera},
		Context: 380 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA Ada GPU architecture whitepaper; memory: typical under Linux",
	},
	{
		Name: "l40", Product: "NVIDIA L40", Aliases: []string{"l40-48gb"},
		SMs: 142, L2: 96 * mib, BoostMHz: 2490,
		Memory: 47_697_362_944, Bandwidth: 864 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 90.5 * tera, TF32: 90.5 * tera, FP16: 181 * tera, BF16: 181 * tera, FP64: 1.41 * tera},
		Context: 400 * mib, ContextSource: estimated,
		Source: "NVIDIA L40 data sheet, sparse rates halved; memory: as the L40S's, ECC on",
	},
	{
		Name: "rtx-6000-ada", Product: "NVIDIA RTX 6000 Ada Generation", Aliases: []string{"rtx-6000-ada-48gb", "6000-ada"},
		SMs: 142, L2: 96 * mib, BoostMHz: 2505,
		Memory: 51_041_271_808, Bandwidth: 960 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 91.1 * tera, TF32: 182.1 * tera, FP16: 364.2 * tera, BF16: 364.2 * tera, FP64: 1.42 * tera},
		Context: 400 * mib, ContextSource: estimated,
		Source: "NVIDIA RTX 6000 Ada data sheet, sparse rates halved; memory: as the RTX A6000's of this size, ECC off",
	},
	{
		Name: "l40s", Product: "NVIDIA L40S", Aliases: []string{"l40s-48gb"},
		SMs: 142, L2: 96 * mib, BoostMHz: 2520,
		Memory: 47_697_362_944, Bandwidth: 864 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 91.6 * tera, TF32: 183 * tera, FP16: 362 * tera, BF16: 362 * tera, FP64: 1.43 * tera},
		Context: 400 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA L40S data sheet; memory: typical under Linux, ECC on",
	},
}}

var hopper = generation{"Hopper", 90, 2048, []GPU{
	{
		Name: "h20", Product: "NVIDIA H20", Aliases: []string{"h20-96gb"},
		SMs: 78, L2: 60 * mib, BoostMHz: 1980,
		Memory: 97_285 * mib, Bandwidth: 4000 * gigabyte, Link: 450 * gigabyte,
		Peak:    Rates{FP32: 39.5 * tera, TF32: 74 * tera, FP16: 148 * tera, BF16: 148 * tera, FP64: 1 * tera},
		Context: 300 * mib, ContextSource: estimated,
		Source: "NVIDIA H20 specification, sparse rates halved, fp32 by lanes and clock; multiprocessors and memory as PyTorch reports them in users' code",
	},
	{
		Name: "h100-pcie", Product: "NVIDIA H100 PCIe", Aliases: []string{"h100-pcie-80gb", "h100-80gb-pcie"},
		SMs: 114, L2: 50 * mib, BoostMHz: 1755,
		Memory: 81_008 * mib, Bandwidth: 2000 * gigabyte, Link: 63 * gigabyte,
		Peak:    Rates{FP32: 51.2 * tera, TF32: 378 * tera, FP16: 756 * tera, BF16: 756 * tera, FP64: 51.2 * tera},
		Context: 430 * mib, ContextSource: estimated,
		Source: "NVIDIA H100 data sheet (PCIe), sparse rates halved; multiprocessors and memory as PyTorch reports them in a user's log",
	},
	{
		Name: "h100-nvl", Product: "NVIDIA H100 NVL", Aliases: []string{"h100-nvl-94gb"},
		SMs: 132, L2: 50 * mib, BoostMHz: 1785,
		Memory: 95_361 * mib, Bandwidth: 3938 * gigabyte, Link: 300 * gigabyte,
		Peak:    Rates{FP32: 60.3 * tera, TF32: 417.5 * tera, FP16: 835 * tera, BF16: 835 * tera, FP64: 60 * tera},
		Context: 500 * mib, ContextSource: estimated,
		Source: "NVIDIA H100 NVL data sheet, sparse rates halved; memory: estimate, as much less than nvidia-smi's " +
			"95830 MiB as the H100's",
	},
	{
		Name: "h100", Product: "NVIDIA H100 80GB HBM3", Aliases: []string{"h100-80", "h100-80gb", "h100-sxm", "h100-sxm5", "H100-SXM5-80GB"},
		SMs: 132, L2: 50 * mib, BoostMHz: 1980,
		Memory: 85_028_700_160, Bandwidth: 3350 * gigabyte, Link: 450 * gigabyte,
		Peak:    Rates{FP32: 67 * tera, TF32: 494.7 * tera, FP16: 989.4 * tera, BF16: 989.4 * tera, FP64: 67 * tera},
		Context: 500 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA H100 data sheet (SXM), sparse rates halved; memory: typical under Linux",
	},
	{
		Name: "gh200", Product: "NVIDIA GH200 480GB", Aliases: []string{"gh200-96gb", "grace-hopper"},
		SMs: 132, L2: 60 * mib, BoostMHz: 1980,
		Memory: 101_468_602_368, Bandwidth: 4000 * gigabyte, Link: 450 * gigabyte,
		Peak:    Rates{FP32: 67 * tera, TF32: 494.7 * tera, FP16: 989.4 * tera, BF16: 989.4 * tera, FP64: 67 * tera},
		Context: 500 * mib, ContextSource: estimated,
		Source: "NVIDIA GH200 data sheet (96 GB HBM3), sparse rates halved; multiprocessors, clock and memory as deviceQuery of CUDA 12.9 reports them; older drivers show up to 97280 MiB",
	},
	{
		Name: "h200", Product: "NVIDIA H200", Aliases: []string{"h200-141", "h200-141gb"},
		SMs: 132, L2: 60 * mib, BoostMHz: 1980,
		Memory: 150_109_093_888, Bandwidth: 4800 * gigabyte, Link: 450 * gigabyte,
		Peak:    Rates{FP32: 67 * tera, TF32: 494.7 * tera, FP16: 989.4 * tera, BF16: 989.4 * tera, FP64: 67 * tera},
		Context: 500 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA H200 data sheet (SXM), sparse rates halved; memory: typical under Linux",
	},
	{
		Name: "gh200-144", Product: "NVIDIA GH200 144G HBM3e", Aliases: []string{"gh200-144gb"},
		SMs: 132, L2: 60 * mib, BoostMHz: 1980,
		Memory: 150_109_093_888, Bandwidth: 4900 * gigabyte, Link: 450 * gigabyte,
		Peak:    Rates{FP32: 67 * tera, TF32: 494.7 * tera, FP16: 989.4 * tera, BF16: 989.4 * tera, FP64: 67 * tera},
		Context: 500 * mib, ContextSource: estimated,
		Source: "NVIDIA GH200 data sheet (144 GB HBM3e), sparse rates halved; memory: estimate, as the H200's of " +
			"the same chips",
	},
}}

var blackwellTesla = generation{"Blackwell", 100, 2048, []GPU{
	{
		Name: "b200", Product: "NVIDIA B200", Aliases: []string{"b200-180gb"},
		SMs: 148, L2: 126 * mib, BoostMHz: 1965,
		Memory: 191_512_510_464, Bandwidth: 7700 * gigabyte, Link: 900 * gigabyte,
		Peak:    Rates{FP32: 75 * tera, TF32: 1100 * tera, FP16: 2250 * tera, BF16: 2250 * tera, FP64: 37 * tera},
		Context: 600 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA HGX B200 data sheet, per GPU, sparse rates halved; memory: typical under Linux",
	},
	{
		Name: "gb200", Product: "NVIDIA GB200", Aliases: []string{"gb200-186gb", "grace-blackwell"},
		SMs: 152, L2: 126 * mib, BoostMHz: 2062,
		Memory: 197_900_894_208, Bandwidth: 8000 * gigabyte, Link: 900 * gigabyte,
		Peak:    Rates{FP32: 80 * tera, TF32: 1250 * tera, FP16: 2500 * tera, BF16: 2500 * tera, FP64: 40 * tera},
		Context: 600 * mib, ContextSource: estimated,
		Source: "NVIDIA GB200 NVL72 data sheet, per GPU, sparse rates halved; bandwidth: 576 TB/s of 72; multiprocessors as PyTorch reports them, clock as nvidia-smi does; memory: 184.31 GiB in messages of PyTorch under Linux, of 189471 MiB in nvidia-smi",
	},
}}

var blackwellUltra = generation{"Blackwell", 103, 2048, []GPU{
	{
		Name: "b300", Product: "NVIDIA B300 SXM6 AC", Aliases: []string{"b300-288gb", "NVIDIA B300"},
		SMs: 148, L2: 126 * mib, BoostMHz: 1920,
		Memory: 274_571 * mib, Bandwidth: 8000 * gigabyte, Link: 900 * gigabyte,
		Peak:    Rates{FP32: 72.7 * tera, TF32: 1125 * tera, FP16: 2250 * tera, BF16: 2250 * tera, FP64: 1.2 * tera},
		Context: 600 * mib, ContextSource: estimated,
		Source: "NVIDIA HGX B300 data sheet, per GPU, sparse rates halved, fp32 by lanes and clock; memory: " +
			"estimate, as much less than nvidia-smi's 275040 MiB as the H100's",
	},
}}

var blackwell = generation{"Blackwell", 120, 1536, []GPU{
	{
		Name: "rtx-5060", Product: "NVIDIA GeForce RTX 5060", Aliases: []string{"rtx-5060-8gb", "5060"},
		SMs: 30, L2: 32 * mib, BoostMHz: 2497,
		Memory: 8_025_145_344, Bandwidth: 448 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 19.2 * tera, TF32: 19.2 * tera, FP16: 38.4 * tera, BF16: 38.4 * tera, FP64: 0.300 * tera},
		Context: 175 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 5060 product page, rates of GB20x at its clock; memory: estimate, as much less " +
			"than sold as the RTX 5060 Ti's",
	},
	{
		Name: "rtx-5060-ti", Product: "NVIDIA GeForce RTX 5060 Ti", Aliases: []string{"rtx-5060-ti-16gb", "5060-ti"},
		SMs: 36, L2: 32 * mib, BoostMHz: 2572,
		Memory: 16_615_079_936, Bandwidth: 448 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 23.7 * tera, TF32: 23.7 * tera, FP16: 47.4 * tera, BF16: 47.4 * tera, FP64: 0.37 * tera},
		Context: 190 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA GeForce RTX 5060 Ti (16 GB) product page, rates of GB20x at its clock; memory: typical under Linux",
	},
	{
		Name: "rtx-5060-ti-8", Product: "NVIDIA GeForce RTX 5060 Ti", Aliases: []string{"rtx-5060-ti-8gb"},
		SMs: 36, L2: 32 * mib, BoostMHz: 2572,
		Memory: 8_025_145_344, Bandwidth: 448 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 23.7 * tera, TF32: 23.7 * tera, FP16: 47.4 * tera, BF16: 47.4 * tera, FP64: 0.370 * tera},
		Context: 190 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 5060 Ti (8 GB) product page, rates of GB20x at its clock; memory: estimate, as " +
			"much less than sold as that of 16 GB",
	},
	{
		Name: "rtx-5070", Product: "NVIDIA GeForce RTX 5070", Aliases: []string{"rtx-5070-12gb", "5070"},
		SMs: 48, L2: 48 * mib, BoostMHz: 2512,
		Memory: 12_348_030_976, Bandwidth: 672 * gigabyte, Link: 63 * gigabyte,
		Peak:    Rates{FP32: 30.9 * tera, TF32: 30.9 * tera, FP16: 61.7 * tera, BF16: 61.7 * tera, FP64: 0.482 * tera},
		Context: 215 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 5070 product page, rates of GB20x at its clock; memory: estimate, as much less than sold as the RTX 5060 Ti's",
	},
	{
		Name: "rtx-5070-ti", Product: "NVIDIA GeForce RTX 5070 Ti", Aliases: []string{"rtx-5070-ti-16gb", "5070-ti"},
		SMs: 70, L2: 48 * mib, BoostMHz: 2452,
		Memory: 16_615_079_936, Bandwidth: 896 * gigabyte, Link: 63 * gigabyte,
		Peak:    Rates{FP32: 43.9 * tera, TF32: 43.9 * tera, FP16: 87.9 * tera, BF16: 87.9 * tera, FP64: 0.687 * tera},
		Context: 265 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 5070 Ti product page, rates of GB20x at its clock; memory: as the RTX 5060 Ti's of this size",
	},
	{
		Name: "rtx-5090-laptop", Product: "NVIDIA GeForce RTX 5090 Laptop GPU", Aliases: []string{"5090-laptop"},
		SMs: 82, L2: 64 * mib, BoostMHz: 2160,
		Memory: 25_212_354_560, Bandwidth: 896 * gigabyte, Link: 31.5 * gigabyte,
		Peak:    Rates{FP32: 45.3 * tera, TF32: 45.3 * tera, FP16: 90.7 * tera, BF16: 90.7 * tera, FP64: 0.708 * tera},
		Context: 290 * mib, ContextSource: estimated,
		Source: "NVIDIA GeForce RTX 50 series laptops, rates of GB20x at the largest boost clock of the product " +
			"page, below which a laptop may stay; memory: estimate, as much less than sold as the RTX 5060 Ti's",
	},
	{
		Name: "rtx-5080", Product: "NVIDIA GeForce RTX 5080", Aliases: []string{"rtx-5080-16gb", "5080"},
		SMs: 84, L2: 64 * mib, BoostMHz: 2617,
		Memory: 16_615_079_936, Bandwidth: 960 * gigabyte, Link: 63 * gigabyte,
		Peak:    Rates{FP32: 56.3 * tera, TF32: 56.3 * tera, FP16: 112.6 * tera, BF16: 112.6 * tera, FP64: 0.879 * tera},
		Context: 295 * mib, ContextSource: estimated,
		Source: "NVIDIA RTX Blackwell GPU architecture whitepaper; memory: as the RTX 5060 Ti's of this size",
	},
	{
		Name: "rtx-5090", Product: "NVIDIA GeForce RTX 5090", Aliases: []string{"rtx-5090-32gb", "5090"},
		SMs: 170, L2: 96 * mib, BoostMHz: 2407,
		Memory: 33_676_525_568, Bandwidth: 1792 * gigabyte, Link: 63 * gigabyte,
		Peak:    Rates{FP32: 104.8 * tera, TF32: 104.8 * tera, FP16: 209.5 * tera, BF16: 209.5 * tera, FP64: 1.64 * tera},
		Context: 480 * mib, ContextSource: estimatedAsReference,
		Source: "NVIDIA RTX Blackwell GPU architecture whitepaper; memory: typical under Linux",
	},
	{
		Name: "rtx-pro-6000", Product: "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", Aliases: []string{"rtx-pro-6000-blackwell", "rtx-pro-6000-96gb", "NVIDIA RTX PRO 6000 Blackwell Server Edition"},
		SMs: 188, L2: 128 * mib, BoostMHz: 2617,
		Memory: 101_972_967_424, Bandwidth: 1792 * gigabyte, Link: 63 * gigabyte,
		Peak:    Rates{FP32: 126 * tera, TF32: 251.9 * tera, FP16: 503.8 * tera, BF16: 503.8 * tera, FP64: 1.97 * tera},
		Context: 520 * mib, ContextSource: estimated,
		Source: "NVIDIA RTX PRO 6000 Blackwell data sheet, sparse rates halved; memory: total that CUDA reports under Linux",
	},
}}

var blackwellSpark = generation{"Blackwell", 121, 1536, []GPU{
	{
		Name: "dgx-spark", Product: "NVIDIA GB10", Aliases: []string{"gb10", "spark"},
		SMs: 48, L2: 24 * mib, BoostMHz: 2525,
		Memory: 128_526_057_472, Bandwidth: 273 * gigabyte, Link: 25 * gigabyte,
		Peak:    Rates{FP32: 31 * tera, TF32: 62.5 * tera, FP16: 125 * tera, BF16: 125 * tera, FP64: 0.484 * tera},
		Context: 215 * mib, ContextSource: estimated,
		Source: "NVIDIA DGX Spark data sheet, FP16 rates a quarter of FP4's; memory: 128 GB less what its firmware keeps, shared with programs on the CPU",
	},
}}
