package monitor

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// TensorBoard writes samples as an event file: TFRecords of TensorFlow's Event
// message (tensorflow/core/util/event.proto), which TensorBoard reads.
type TensorBoard struct {
	w    io.Writer
	step int64
}

// NewTensorBoard begins an event file.
func NewTensorBoard(w io.Writer, now time.Time) (*TensorBoard, error) {
	t := &TensorBoard{w: w}
	event := wallTime(nil, now)
	event = protowire.AppendTag(event, 3, protowire.BytesType) // file_version
	event = protowire.AppendString(event, "brain.Event:2")
	return t, t.record(event)
}

// Write adds samples of one moment as a step.
func (t *TensorBoard) Write(samples []Sample) error {
	for _, s := range samples {
		if s.Error != "" {
			continue
		}
		gpu := "gpu" + strconv.Itoa(s.GPU) + "/"
		var summary []byte
		summary = scalar(summary, gpu+"used_bytes", float64(s.Used))
		summary = scalar(summary, gpu+"highest_bytes", float64(s.Highest))
		summary = scalar(summary, gpu+"peak_bytes", float64(s.Peak))
		if s.Watched != nil {
			summary = scalar(summary, gpu+"watched_bytes", float64(*s.Watched))
		}
		if s.GPUPercent != nil {
			summary = scalar(summary, gpu+"gpu_percent", float64(*s.GPUPercent))
		}
		if s.Celsius != nil {
			summary = scalar(summary, gpu+"celsius", float64(*s.Celsius))
		}
		if s.Watts != nil {
			summary = scalar(summary, gpu+"watts", *s.Watts)
		}
		event := wallTime(nil, s.Time)
		event = protowire.AppendTag(event, 2, protowire.VarintType) // step
		event = protowire.AppendVarint(event, uint64(t.step))
		event = protowire.AppendTag(event, 5, protowire.BytesType) // summary
		event = protowire.AppendBytes(event, summary)
		if err := t.record(event); err != nil {
			return err
		}
	}
	t.step++
	return nil
}

func wallTime(event []byte, at time.Time) []byte {
	event = protowire.AppendTag(event, 1, protowire.Fixed64Type)
	return protowire.AppendFixed64(event, math.Float64bits(float64(at.UnixNano())/1e9))
}

// scalar adds a Summary.Value with tag and simple_value.
func scalar(summary []byte, tag string, v float64) []byte {
	var value []byte
	value = protowire.AppendTag(value, 1, protowire.BytesType)
	value = protowire.AppendString(value, tag)
	value = protowire.AppendTag(value, 2, protowire.Fixed32Type)
	value = protowire.AppendFixed32(value, math.Float32bits(float32(v)))
	summary = protowire.AppendTag(summary, 1, protowire.BytesType)
	return protowire.AppendBytes(summary, value)
}

// record writes a TFRecord: length, its checksum, data, its checksum.
func (t *TensorBoard) record(data []byte) error {
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	out := binary.LittleEndian.AppendUint32(length, masked(length))
	out = append(out, data...)
	out = binary.LittleEndian.AppendUint32(out, masked(data))
	_, err := t.w.Write(out)
	return err
}

// masked is TensorFlow's masked CRC-32C.
func masked(data []byte) uint32 {
	crc := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (crc>>15 | crc<<17) + 0xa282ead8
}
