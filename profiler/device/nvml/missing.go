//go:build !linux || !cgo

package nvml

// A Library is NVML. This binary has none.
type Library struct{}

// A GPU is a GPU as NVML sees it. This binary never has one.
type Board struct {
	Index      int
	Name, UUID string
	Mode       Mode
	MIG        bool
}

// Open returns [ErrNotBuilt].
func Open() (*Library, error) { return nil, ErrNotBuilt }

// Close does nothing.
func (*Library) Close() error { return nil }

// Versions returns [ErrNotBuilt].
func (*Library) Versions() (Versions, error) { return Versions{}, ErrNotBuilt }

// GPUs returns [ErrNotBuilt].
func (*Library) Boards() ([]*Board, error) { return nil, ErrNotBuilt }

// Visible returns [ErrNotBuilt].
func (*Library) Visible(string) ([]*Board, error) { return nil, ErrNotBuilt }

// Find returns [ErrNotBuilt].
func (*Library) Find(string) (*Board, error) { return nil, ErrNotBuilt }

// Slices returns [ErrNotBuilt].
func (*Board) Slices() ([]*Board, error) { return nil, ErrNotBuilt }

// Memory returns [ErrNotBuilt].
func (*Board) Memory() (Memory, error) { return Memory{}, ErrNotBuilt }

// Processes returns [ErrNotBuilt].
func (*Board) Processes() ([]Process, error) { return nil, ErrNotBuilt }

// Read returns [ErrNotBuilt].
func (*Board) Read() (Reading, error) { return Reading{}, ErrNotBuilt }
