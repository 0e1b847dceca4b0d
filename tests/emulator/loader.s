/* The emulated machine's firmware: 64 KiB below 4 GiB, entered at its last 16 bytes.  It does the least that Linux's
 * 32-bit boot protocol asks: flat segments, the address of the boot parameters in esi, a jump to the kernel.  The
 * emulator has put everything into memory already, as one image.
 *
 * Given to the assembler: image and image_end, the image's addresses; parameters; entry, the kernel's. */
        .set    base, 0xf0000
        .code16
        .text
start:
        cli
        lgdtl   %cs:descriptor_table - base
        movl    %cr0, %eax
        orb     $1, %al
        movl    %eax, %cr0
        ljmpl   $0x10, $flat

        .code32
flat:
        movl    $0x18, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss
/* Bochs hands out its memory in pieces, in the order of their first use, but reads an image in one go: so the image's
 * pages are used first, in ascending order, before any other memory is. */
        movl    $image, %edx
touch:  movl    (%edx), %eax
        addl    $4096, %edx
        cmpl    $image_end, %edx
        jb      touch
        movl    $parameters, %esi
        xorl    %ebx, %ebx
        xorl    %ebp, %ebp
        xorl    %edi, %edi
        movl    $entry, %eax
        jmp     *%eax

        .balign 8
descriptors:
        .quad   0, 0
        .quad   0x00cf9a000000ffff /* 0x10: code, 4 GiB */
        .quad   0x00cf92000000ffff /* 0x18: data, 4 GiB */
descriptor_table:
        .word   descriptor_table - descriptors - 1
        .long   descriptors

        .org    0xfff0
        .code16
reset:  ljmpw   $0xf000, $(start - base)
        .org    0x10000
