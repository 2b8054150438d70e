package nn

import (
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/trace"
)

// fusedGemm4bit reports whether bitsandbytes 0.50 multiplies m rows by a 4-bit weight [n, k] in one kernel
// (_gemm_4bit_use_custom_cuda), which is faster for few rows. Otherwise it dequantizes the weight first, as training
// usually does.
func fusedGemm4bit(b trace.GPU, d trace.DType, m, n, k int64) bool {
	const always, never = 4, 1536
	switch {
	case m <= always:
		return true
	case m > never:
		return false
	}
	major, minor := b.Capability/10, b.Capability%10
	switch {
	case d == trace.F32 || major < 7 || major == 7 && (minor < 5 || d != trace.F16):
		return m < 8
	case major == 8 && minor == 7 || major == 11:
		return false
	}
	sms, blocks := int64(b.SMs), ceil.Div(n, 64)
	if major == 10 {
		switch {
		case blocks >= 3*sms:
			return m <= 32
		case blocks >= sms:
			return k < n && m <= 8
		}
		return false
	}
	if n*k < 4<<20 {
		return m <= smallWeightMaxRows(b.Capability, sms, blocks, m, n, k)
	}
	if m > 512 {
		return false
	}
	if m < 8 {
		return !dequantizesTallWeight(b.Capability, sms, blocks, m, n, k)
	}
	return m <= largeWeightMaxRows(b.Capability, sms, blocks, n, k)
}

// smallWeightMaxRows returns the largest number of rows for which the fused kernel is faster, below 4 Mi elements.
func smallWeightMaxRows(capability int, sms, blocks, m, n, k int64) int64 {
	ampere, hopper := capability == 80, capability == 90
	turing, fast := capability == 75, ampere || hopper
	if 2*k < n {
		switch {
		case fast:
			return ifElse(3*blocks < sms, ifElse(ampere, 1536, 512), ifElse(ampere, 512, 320))
		case turing && blocks >= 3*sms:
			return 320
		case turing:
			return ifElse(k >= 1024, 64, ifElse(k >= 704, 96, 320))
		case blocks >= sms:
			return 320
		}
		return ifElse(blocks*k > 320*sms, 192, 320)
	}
	quarter := 4*blocks <= sms
	switch {
	case ampere && quarter:
		return ifElse(k >= n, ifElse(8*blocks <= sms, 32, 128), 384)
	case turing && blocks < sms && m > 8:
		return 64
	case quarter:
		return ifElse(k < n || fast, 32, 23)
	case 2*blocks <= sms:
		return 16
	}
	return 0
}

// dequantizesTallWeight reports whether dequantizing first is faster for the 6 or 7 rows in m.
func dequantizesTallWeight(capability int, sms, blocks, m, n, k int64) bool {
	ampere, hopper := capability == 80, capability == 90
	if !ampere && !hopper || m < 6 || blocks < ifElse(hopper, 36, 48) {
		return false
	}
	below75, below60 := 4*blocks < 3*sms, 5*blocks < 3*sms
	return k > n && below75 || k == n && (ampere && below60 || hopper && below75 && !below60)
}

// largeWeightMaxRows returns the largest number of rows for which the fused kernel is faster, for weights of 4 Mi
// elements and more.
func largeWeightMaxRows(capability int, sms, blocks, n, k int64) int64 {
	half := blocks >= sms/2
	switch capability {
	case 75:
		return ifElse(blocks >= 3*sms, ifElse(k < n, 128, 64), ifElse(half, 64, 32))
	case 80:
		switch {
		case blocks >= 3*sms:
			return 128
		case blocks >= sms:
			return ifElse(k < n, 64, 32)
		case k >= 3*n && 4*blocks > sms, k == n && blocks >= 48 && 5*blocks < 3*sms:
			return 0
		case 2*blocks < sms && k <= n:
			return 128
		case 2*blocks < sms && 3*blocks >= sms:
			return 0
		}
		return ifElse(half && k < n, 128, 16)
	case 86:
		return ifElse(blocks >= sms, 128, ifElse(half, 64, 16))
	case 90:
		switch {
		case blocks >= sms:
			return ifElse(blocks >= 3*sms, 64, ifElse(blocks >= 2*sms, 48, 32))
		case half:
			return ifElse(k >= n && 4*blocks < 3*sms, 0, 16)
		}
		return 0
	case 120:
		return blackwellMaxRows(sms, blocks, n, k)
	case 121:
		if blocks >= sms {
			return 256
		}
	}
	return adaMaxRows(sms, blocks, n, k)
}

func blackwellMaxRows(sms, blocks, n, k int64) int64 {
	switch {
	case blocks >= 3*sms:
		return 256
	case blocks >= 2*sms:
		return 128
	case 5*blocks >= 4*sms:
		return ifElse(k >= n, 96, 64)
	case blocks >= sms:
		return 64
	case blocks >= sms/2:
		return ifElse(2*k >= n && blocks >= 128, 64, 8)
	}
	return ifElse(k > 2*n && blocks > 64, 16, 8)
}

func adaMaxRows(sms, blocks, n, k int64) int64 {
	tall := k > 2*n
	switch {
	case blocks >= 3*sms:
		return 256
	case blocks >= 2*sms:
		return 128
	case 5*blocks >= 4*sms:
		return ifElse(tall || blocks >= 200, 128, ifElse(k >= n, ifElse(sms >= 60, 128, 32), 64))
	case blocks >= sms/2:
		return ifElse(tall, 64, ifElse(blocks >= 64, 8, 32))
	case k > n && blocks <= 48:
		return ifElse(k >= 3*n, 12, 10)
	}
	return ifElse(tall || blocks < 48, 16, 8)
}

func ifElse(condition bool, yes, no int64) int64 {
	if condition {
		return yes
	}
	return no
}
