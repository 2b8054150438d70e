//go:build !linux || !cgo

package nvml

// A Library is NVML. This binary was built without it.
type Library struct{}

// A GPU is a GPU in NVML. This binary was built without it.
type GPU struct {
	Index      int
	Name, UUID string
	Mode       Mode
	MIG        bool
}

// Open returns [ErrNotBuilt].
func Open() (*Library, error) { return nil, ErrNotBuilt }

// Close returns nil: there is nothing to close.
func (*Library) Close() error { return nil }

// Versions returns [ErrNotBuilt].
func (*Library) Versions() (Versions, error) { return Versions{}, ErrNotBuilt }

// GPUs returns [ErrNotBuilt].
func (*Library) GPUs() ([]*GPU, error) { return nil, ErrNotBuilt }

// Visible returns [ErrNotBuilt].
func (*Library) Visible(string) ([]*GPU, error) { return nil, ErrNotBuilt }

// Find returns [ErrNotBuilt].
func (*Library) Find(string) (*GPU, error) { return nil, ErrNotBuilt }

// Slices returns [ErrNotBuilt].
func (*GPU) Slices() ([]*GPU, error) { return nil, ErrNotBuilt }

// Memory returns [ErrNotBuilt].
func (*GPU) Memory() (Memory, error) { return Memory{}, ErrNotBuilt }

// Processes returns [ErrNotBuilt].
func (*GPU) Processes() ([]Process, error) { return nil, ErrNotBuilt }

// Read returns [ErrNotBuilt].
func (*GPU) Read() (Reading, error) { return Reading{}, ErrNotBuilt }
