package guest

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/reservations"
)

// Offsets in struct sg_io_hdr of scsi/sg.h, on 64-bit machines.
const (
	sgSize       = 88
	sgDirection  = 4
	sgCDBLength  = 8
	sgSenseRoom  = 9
	sgIovecs     = 10
	sgLength     = 12
	sgData       = 16
	sgCDB        = 24
	sgSense      = 32
	sgStatus     = 64
	sgMasked     = 65
	sgSenseWrote = 67
	sgHostStatus = 68
	sgDriver     = 70
	sgResidual   = 72
	sgDuration   = 76
	sgInfo       = 80
)

const (
	sgInterface    = 'S'
	sgToDevice     = -2
	sgFromDevice   = -3
	maxData        = 64 << 10
	driverSense    = 0x08
	sgInfoCheck    = 1
	statusMask     = 0x3E
	reservationCDB = 10
)

// sendCommand does SG_IO for the commands about reservations, and leaves others to the kernel.
func (c *call) sendCommand(run execute) error {
	header, err := c.read(c.argument, sgSize)
	if err != nil {
		return err
	}
	word := func(at int) uintptr { return uintptr(binary.NativeEndian.Uint64(header[at:])) }
	length := int(binary.NativeEndian.Uint32(header[sgLength:]))
	direction := int32(binary.NativeEndian.Uint32(header[sgDirection:]))
	if header[0] != sgInterface || header[sgCDBLength] != reservationCDB {
		return errNotOurs
	}
	cdb, err := c.read(word(sgCDB), reservationCDB)
	if err != nil {
		return err
	}
	if cdb[0] != reservations.OpIn && cdb[0] != reservations.OpOut {
		return errNotOurs
	}
	if binary.NativeEndian.Uint16(header[sgIovecs:]) != 0 || length > maxData {
		return unix.EINVAL
	}
	var out []byte
	if direction == sgToDevice {
		if out, err = c.read(word(sgData), length); err != nil {
			return err
		}
	}
	answer, err := run(cdb, out)
	if err != nil {
		return err
	}
	data := answer.Data
	if direction != sgFromDevice {
		data = nil
	}
	data = data[:min(len(data), length)]
	if err := c.write(word(sgData), data); err != nil {
		return err
	}
	sense := answer.Sense[:min(len(answer.Sense), int(header[sgSenseRoom]))]
	if err := c.write(word(sgSense), sense); err != nil {
		return err
	}
	fillHeader(header, answer, len(sense), length-len(data)-len(out))
	return c.write(c.argument, header)
}

// fillHeader writes the outcome into an sg_io_hdr.
func fillHeader(header []byte, answer reservations.Answer, sense, residual int) {
	status := byte(answer.Status)
	header[sgStatus], header[sgMasked], header[sgSenseWrote] = status, status&statusMask>>1, byte(sense)
	binary.NativeEndian.PutUint16(header[sgHostStatus:], 0)
	driver, info := uint16(0), uint32(0)
	if sense > 0 {
		driver = driverSense
	}
	if status != 0 {
		info = sgInfoCheck
	}
	binary.NativeEndian.PutUint16(header[sgDriver:], driver)
	binary.NativeEndian.PutUint32(header[sgResidual:], uint32(residual))
	binary.NativeEndian.PutUint32(header[sgDuration:], 0)
	binary.NativeEndian.PutUint32(header[sgInfo:], info)
}
